#include "src/checkpoint/checkpoint_pins.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/io_engine.h"
#include "headrace/log.h"
#include "headrace/pinned_checkpoints.h"
#include "src/checkpoint/agreement.h"
#include "src/checkpoint/folder.h"
#include "src/checkpoint/open_manifest.h"

namespace headrace {
namespace {

using nlohmann::json;

std::uint64_t number_of(const std::string& directory) {
  const std::string name = files::absolute(directory);
  return crc32c(std::as_bytes(std::span(name)));
}

// ".5a0c11fe", of its name.
std::string mark_of(std::uint64_t number) {
  return fmt::format(".{:08x}", number);
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

void add_named_pin(const std::string& checkpoint, CheckpointPins::Named& named) {
  std::string error;
  for (const char* name : {manifest_name, manifest_copy_name}) {
    const ManifestText read = read_manifest(checkpoint, name);
    if (read.manifest) {
      if (read.manifest->is_pinned()) named.names.push_back(read.manifest->pin);
      return;
    }
    if (error.empty()) error = read.error;
  }
  if (!error.empty()) named.unread.push_back(error);
}

CheckpointPins::Named named_pins(const std::string& directory) {
  CheckpointPins::Named named;
  const CheckpointFolder folder = look_into(directory);
  for (const FoundCheckpoint& found : folder.found) add_named_pin(found.path, named);
  for (const std::string& damaged : folder.damaged) add_named_pin(damaged, named);
  named.checkpoints = folder.found.size() + folder.damaged.size();
  return named;
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

// A save that is killed leaves one pin without a checkpoint, and each start releases it.
void refuse_lost_folder(const std::vector<SwapPin>& pins, const std::string& mark,
                        const std::vector<std::string>& store_directories, const std::string& directory) {
  std::vector<std::string> own;
  for (const SwapPin& pin : pins)
    if (pin.name.ends_with(mark)) own.push_back(pin.name);
  if (own.size() < 2) return;
  throw UsageError(fmt::format(
      "there is no checkpoint in {}, and the swap store in {} keeps {} pinned versions for those that were: "
      "{}. Nothing was released. Mount the folder if it is not; give its new place if it was moved; or give "
      "those that are no longer needed back with `headrace checkpoint release`.",
      directory, fmt::join(store_directories, ", "), own.size(), fmt::join(own, ", ")));
}

}  // namespace

void require_folder_of_pins(const std::vector<std::string>& store_directories, const std::string& directory) {
  SwapDescription store;
  try {
    store = SwapStore::describe(store_directories);
  } catch (const Error&) {  // whoever opens it tells
    return;
  }
  if (!store.pins.empty() && named_pins(directory).checkpoints == 0)
    refuse_lost_folder(store.pins, mark_of(number_of(directory)), store_directories, directory);
}

void require_room_for_pins(const std::vector<std::string>& store_directories, const std::string& directory,
                           std::uint64_t keep_last) {
  const SwapDescription store = SwapStore::describe(store_directories);
  const std::vector<std::string> named = named_pins(directory).names;
  const std::string mark = mark_of(number_of(directory));
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
      mark_(mark_of(
          gather_from_ranks(number_of(directory_), communicator, device, "mark of a folder").front())),
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

CheckpointPins::Named CheckpointPins::named() {
  Named own, all;
  together(communicator_, device_, "pinned checkpoints", [&] { own = named_pins(directory_); });
  all.names = gather_lines(own.names, communicator_, device_, "pins of checkpoints");
  all.unread = gather_lines(own.unread, communicator_, device_, "checkpoints that cannot be read");
  for (const std::uint64_t checkpoints :
       gather_from_ranks(own.checkpoints, communicator_, device_, "checkpoints of a folder"))
    all.checkpoints += checkpoints;
  return all;
}

std::vector<std::string> CheckpointPins::release(const std::vector<std::string>& named_before,
                                                 const std::string& published) {
  return release_all_but(named(), named_before, published);
}

std::vector<std::string> CheckpointPins::release_all_but(const Named& still,
                                                         const std::vector<std::string>& named_before,
                                                         const std::string& published) {
  std::vector<std::string> released;
  if (!still.unread.empty()) {
    const std::string text = fmt::format(
        "no pinned version of the swap store is released while a checkpoint cannot be read that may need it. "
        "Bring its manifest.json back, or remove its folder. {}",
        still.unread.front());
    if (communicator_.rank() == 0) warn_once(text, text);
    return released;
  }
  together(communicator_, device_, "release pinned versions", [&] {
    if (files::folder_exists(directory_)) files::sync_folder(directory_);
    for (const SwapPin& pin : store_.pins()) {
      if (pin.name == published || contains(still.names, pin.name)) continue;
      if (!pin.name.ends_with(mark_) && !contains(named_before, pin.name)) continue;
      store_.unpin(pin.name);
      released.push_back(pin.name);
    }
  });
  return released;
}

void CheckpointPins::release_left_over() {
  const Named now = named();
  together(communicator_, device_, "pins without checkpoints", [&] {
    if (now.checkpoints == 0) refuse_lost_folder(store_.pins(), mark_, store_directories_, directory_);
  });
  if (const std::vector<std::string> released = release_all_but(now, {}, ""); !released.empty())
    log_info(fmt::format("the swap store gives back what no checkpoint in {} needs any more: {}", directory_,
                         fmt::join(released, ", ")));
}

}  // namespace headrace
