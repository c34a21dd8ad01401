#include "src/checkpoint/checkpoint_pins.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/io_engine.h"
#include "headrace/log.h"
#include "headrace/pinned_checkpoints.h"
#include "src/checkpoint/agreement.h"

namespace headrace {
namespace {

using nlohmann::json;

// ".5a0c11fe", of its name.
std::string mark_of(const std::string& directory) {
  const std::string name = files::absolute(directory);
  return fmt::format(".{:08x}", crc32c(std::as_bytes(std::span(name))));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Damaged ones keep nothing, for nothing can be loaded by them. IoError where one cannot be read: it may be
// good.
std::vector<std::string> named_pins(const std::string& directory) {
  std::vector<std::string> names;
  for (const FoundCheckpoint& found : find_checkpoints(directory)) {
    const std::string file = files::join(found.path, manifest_name);
    try {
      const std::vector<std::byte> bytes = files::read_file(file);
      const Manifest manifest =
          parse_manifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
      if (manifest.is_pinned()) names.push_back(manifest.pin);
    } catch (const CorruptData&) {
    } catch (const IoError& error) {
      if (error.code() != ENOENT) throw;  // it has parity, or was just removed
    }
  }
  return names;
}

// The lines of all ranks.
std::vector<std::string> gather_lines(const std::vector<std::string>& own, Communicator& communicator,
                                      Device& device, std::string_view label) {
  std::string text;
  for (const std::string& line : own) text += line + '\n';
  const std::vector<std::byte> all =
      gather_bytes(std::as_bytes(std::span(text)), communicator, device, label);
  std::istringstream lines(std::string(reinterpret_cast<const char*>(all.data()), all.size()));
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line);) result.push_back(line);
  return result;
}

// How a run that keeps its store goes on where that has no room.
std::string advice(const SwapDescription& store, std::uint64_t others) {
  const std::uint64_t left = store.most_pins - std::min<std::uint64_t>(store.most_pins, others);
  return fmt::format(
      "Give {}--checkpoint-mode copy; or make a store with more room: `headrace checkpoint copy` a "
      "checkpoint, "
      "and --resume that copy with --overwrite-swap.",
      left > 1 ? fmt::format("--keep-last {} or less, or ", left - 1) : "");
}

}  // namespace

void require_room_for_pins(const std::vector<std::string>& store_directories, const std::string& directory,
                           std::uint64_t keep_last) {
  const SwapDescription store = SwapStore::describe(store_directories);
  const std::vector<std::string> named = named_pins(directory);
  const std::string mark = mark_of(directory);
  std::vector<std::string> others;
  for (const SwapPin& pin : store.pins)
    if (!pin.name.ends_with(mark) && !contains(named, pin.name)) others.push_back(pin.name);
  const std::uint64_t needed = keep_last + 1;
  if (store.most_pins >= needed + others.size()) return;
  const std::string wants =
      fmt::format("--checkpoint-mode pin --keep-last {} needs room for {} pinned versions in the swap store",
                  keep_last, needed);
  const std::string where = fmt::format("{}", fmt::join(store_directories, ", "));
  if (others.empty())
    throw UsageError(
        fmt::format("{}, and {} was made for {}. {}", wants, where, store.most_pins, advice(store, 0)));
  throw UsageError(fmt::format(
      "{}, and {} was made for {}, of which checkpoints in other folders than {} use {}: {}. `headrace "
      "checkpoint release` gives back those whose checkpoints are no longer needed. {}",
      wants, where, store.most_pins, directory, others.size(), fmt::join(others, ", "),
      advice(store, others.size())));
}

CheckpointPins::CheckpointPins(SwapStore& store, std::vector<std::string> store_directories,
                               std::string directory, Communicator& communicator, Device& device)
    : store_(store),
      store_directories_(std::move(store_directories)),
      directory_(std::move(directory)),
      mark_(mark_of(directory_)),
      communicator_(communicator),
      device_(device) {}

CheckpointPins::Pinned CheckpointPins::pin(std::uint64_t step) {
  std::random_device random;
  const std::uint64_t drawn =
      gather_from_ranks(std::uint64_t{random()}, communicator_, device_, "name of a pin").front();
  Pinned pinned{fmt::format("{}.{:08x}{}", checkpoint_name(step), drawn & 0xffffffffu, mark_), {}};
  const SwapCommit newest = store_.commits().back();
  HEADRACE_CHECK(newest.step == step, "step {} is pinned, the last commit is {}", step, newest.step);
  try {
    together(communicator_, device_, "pin a version", [&] { store_.pin(pinned.name); });
    pinned.stores = gather_stores();
  } catch (const Error&) {
    give_up(pinned.name);
    throw;
  }
  return pinned;
}

void CheckpointPins::give_up(const std::string& name) noexcept {
  try {
    store_.unpin(name);
  } catch (const std::exception& error) {
    log_warning(fmt::format("the pinned version {} of a checkpoint that was not saved is still there: {}",
                            name, error.what()));
  }
}

// How a manifest finds it again.
ManifestStore CheckpointPins::own_store() const {
  const std::vector<std::string> lost = store_.lost_directories();
  ManifestStore result;
  for (const std::string& directory : store_directories_) {
    result.directories.push_back(files::absolute(directory));
    if (!contains(lost, directory)) result.id = SwapStore::id_of(directory);
  }
  return result;
}

std::vector<ManifestStore> CheckpointPins::gather_stores() {
  std::string own;
  together(communicator_, device_, "swap store of a checkpoint", [&] {
    const ManifestStore store = own_store();
    own = json{{"id", store.id}, {"directories", store.directories}}.dump();
  });
  std::vector<ManifestStore> stores;
  for (const std::string& line : gather_lines({own}, communicator_, device_, "swap stores of a checkpoint")) {
    const json object = json::parse(line);
    stores.push_back(
        {object.at("id").get<std::uint64_t>(), object.at("directories").get<std::vector<std::string>>()});
  }
  return stores;
}

std::vector<std::string> CheckpointPins::named() {
  std::vector<std::string> own;
  together(communicator_, device_, "pinned checkpoints", [&] { own = named_pins(directory_); });
  return gather_lines(own, communicator_, device_, "pins of checkpoints");
}

void CheckpointPins::release(const std::vector<std::string>& named_before) {
  const std::vector<std::string> still = named();
  together(communicator_, device_, "release pinned versions", [&] {
    if (files::folder_exists(directory_)) files::sync_folder(directory_);
    for (const SwapPin& pin : store_.pins())
      if (!contains(still, pin.name) && (pin.name.ends_with(mark_) || contains(named_before, pin.name)))
        store_.unpin(pin.name);
  });
}

}  // namespace headrace
