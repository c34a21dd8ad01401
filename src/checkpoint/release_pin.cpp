// Pinned versions that nobody needs any more, as those of checkpoints in folders that are gone.
#include <fmt/ranges.h>

#include <algorithm>

#include "headrace/errors.h"
#include "headrace/inspect.h"
#include "headrace/pinned_checkpoints.h"
#include "headrace/swap_store.h"

namespace headrace {

ReleasedPin release_pin(const std::vector<std::string>& swap_paths, const std::string& name, IoEngine& io) {
  const auto has = [&](const SwapDescription& store) {
    return std::ranges::find(store.pins, name, &SwapPin::name) != store.pins.end();
  };
  std::vector<std::vector<std::string>> stores;
  std::vector<std::string> others;
  for (const std::vector<std::string>& folders : swap_stores_in(swap_paths)) {
    const SwapDescription store = SwapStore::describe(folders);
    if (has(store)) stores.push_back(folders);
    for (const SwapPin& pin : store.pins)
      if (std::ranges::find(others, pin.name) == others.end()) others.push_back(pin.name);
  }
  if (stores.empty())
    throw UsageError(fmt::format(
        "no swap store in {} has a pinned version {}; {}.", fmt::join(swap_paths, ", "), shortened(name),
        others.empty() ? "they have none" : fmt::format("they have {}", fmt::join(others, ", "))));
  for (const std::vector<std::string>& folders : stores) SwapStore::require_free(folders);
  for (const std::vector<std::string>& folders : stores) {
    const SwapDescription store = SwapStore::describe(folders);
    SwapStoreOptions options;
    options.directories = folders;
    options.layout = store.layout;
    options.parity = store.parity;
    SwapStore::open(options, io)->unpin(name);
  }
  return {.stores = stores.size()};
}

}  // namespace headrace
