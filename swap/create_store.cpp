// How folders become a swap store.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/log.h"
#include "swap/versioned_store.h"

namespace headrace {
namespace swap {
using namespace files;

namespace {

StripeShape shape_of(const SwapStoreOptions& options) {
  return {static_cast<std::uint32_t>(std::max<std::size_t>(options.directories.size(), 1)), options.parity,
          options.durability, default_extent_alignment, options.pins};
}

void check_options(const SwapStoreOptions& options) {
  const std::size_t paths = options.directories.size();
  if (paths == 0 || paths > most_paths)
    throw UsageError(fmt::format("a swap store has 1 to {} paths; {} are given.", most_paths, paths));
  if (options.parity >= paths)
    throw UsageError(fmt::format(
        "parity {} needs more than {} swap paths, and {} {} given. Give more paths, or less parity.",
        options.parity, options.parity, paths, paths == 1 ? "is" : "are"));
  if (options.pins > 0 && options.durability != Durability::step)
    throw UsageError("versions can be pinned with durability \"step\" only.");
  if (options.pins > most_pins)
    throw UsageError(fmt::format("{} pinned versions are wanted, and a swap store keeps up to {}.",
                                 options.pins, most_pins));
  if (!options.path_rates.empty() && options.path_rates.size() != paths)
    throw UsageError(fmt::format("{} swap paths have {} rates. Give one for each, or none.", paths,
                                 options.path_rates.size()));
  for (const double rate : options.path_rates)
    if (!(rate > 0) || !std::isfinite(rate))
      throw UsageError(fmt::format("the rate of a swap path is {}, and must be above 0.", rate));
}

std::vector<std::string> distinct_directories(const std::vector<std::string>& directories) {
  std::vector<std::string> all;
  for (const std::string& directory : directories) {
    std::string path = absolute(directory);
    if (const auto same = std::find(all.begin(), all.end(), path); same != all.end())
      throw UsageError(fmt::format("the swap paths {} and {} are the same folder. Give each once.",
                                   directories[static_cast<std::size_t>(same - all.begin())], directory));
    all.push_back(std::move(path));
  }
  return all;
}

bool is_refusal_of_space(int code) {
  return code == ENOSPC || code == EDQUOT || code == EFBIG;
}

// Makes the folder if its parent exists; returns whether it was made.
bool make_store_folder(const std::string& path) {
  if (path.empty()) throw UsageError("the swap path is empty; give the folder with --swap-path.");
  const int code = make_folder(path);
  if (code == 0) return true;
  if (folder_exists(path)) return false;
  if (is_refusal_of_space(code))
    throw DoesNotFit(
        fmt::format("the swap folder {} cannot be made: {}. Free some space, or give --swap-path a folder on "
                    "a larger disk.",
                    path, std::strerror(code)));
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("the swap folder {} cannot be used: {}", path, why));
  };
  if (code == EEXIST && !std::filesystem::exists(path))
    refuse("it is a symbolic link to something that does not exist. Remove the link or make its target.");
  if (code == EEXIST) refuse("it is a file. Give a folder with --swap-path.");
  if (code == ENOENT)
    refuse(fmt::format("its parent {} does not exist. Make it, or correct --swap-path.", parent_of(path)));
  refuse(fmt::format("{}. Choose a --swap-path that this user can write to.", std::strerror(code)));
  return false;
}

// Bytes on disk of the files a stale store left, which create() is about to free.
Bytes reclaimable_bytes(const std::string& directory) {
  return bytes_on_disk(join(directory, extents_name)) + bytes_on_disk(join(directory, journal_name));
}

[[noreturn]] void does_not_fit(const std::string& directories, Bytes needed, Bytes available,
                               Durability durability, std::string_view why) {
  throw DoesNotFit(
      fmt::format("the swap store in {} needs {} ({} bytes) and its file system has {} ({} bytes) free{}. "
                  "Free some space, or give "
                  "--swap-path a folder on a larger disk{}.",
                  directories, format_bytes(needed), needed, format_bytes(available), available, why,
                  durability == Durability::step
                      ? ", or use durability \"none\" (half the space, but a crashed run cannot be resumed)"
                      : ""));
}

void require_space(const SwapStoreOptions& options, const std::vector<Bytes>& needed) {
  std::vector<PathSpace> paths;
  for (std::size_t path = 0; path < needed.size(); ++path) {
    const std::string& directory = options.directories[path];
    paths.push_back({directory, needed[path], reclaimable_bytes(directory)});
  }
  for (const DiskSpace& disk : space_by_disk(paths))
    if (!disk.is_enough())
      does_not_fit(fmt::format("{}", fmt::join(disk.paths, " and ")), disk.needed, disk.available,
                   options.durability, "");
}

std::uint64_t random_id() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// Takes back what a create() that failed has made on one path.
class CreationGuard {
 public:
  explicit CreationGuard(const std::string& directory)
      : directory_(directory), made_folder_(make_store_folder(directory)) {
    try {
      lock_.emplace(StoreLock::acquire(directory_));
    } catch (...) {
      if (made_folder_) remove_folder(directory_);
      throw;
    }
  }
  CreationGuard(const CreationGuard&) = delete;
  CreationGuard& operator=(const CreationGuard&) = delete;
  ~CreationGuard() {
    if (!lock_) return;
    if (!untouched_) {
      try {
        remove_store_files(directory_);
      } catch (const IoError& error) {
        log_warning(error.what());
      }
    }
    lock_->remove_file_on_release();
    lock_.reset();
    if (made_folder_) remove_folder(directory_);
  }
  // From now on the earlier store here is given up.
  void reclaim() {
    untouched_ = false;
    owns_folder_ = made_folder_ || made_by_stale_store(directory_);
    if (!holds_description(directory_) && !file_exists(join(directory_, extents_name)) &&
        pin_files(directory_).empty())
      return;
    const SwapOwner& owner = lock_->previous_owner();
    log_info(fmt::format("reclaiming the swap store in {}{}", directory_,
                         owner.state == SwapOwner::State::none
                             ? ""
                             : fmt::format(": process {} on {} is gone", owner.pid, owner.host)));
    remove_store_files(directory_);
  }
  bool owns_folder() const { return owns_folder_; }
  StoreLock release() {
    StoreLock lock = std::move(*lock_);
    lock_.reset();
    return lock;
  }

 private:
  std::string directory_;
  bool made_folder_, owns_folder_ = false, untouched_ = true;
  std::optional<StoreLock> lock_;
};

// In the order of their names: of two runs that give the same folders in different order one gets them.
std::vector<std::unique_ptr<CreationGuard>> guard_folders(const std::vector<std::string>& directories,
                                                          const std::vector<std::string>& names) {
  std::vector<std::size_t> order(directories.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return names[a] < names[b]; });
  std::vector<std::unique_ptr<CreationGuard>> guards(directories.size());
  for (const std::size_t p : order) guards[p] = std::make_unique<CreationGuard>(directories[p]);
  return guards;
}

std::vector<IoFile> create_extents(const SwapStoreOptions& options) {
  std::vector<IoFile> files;
  for (const std::string& directory : options.directories)
    files.push_back(open_extents(directory, shape_of(options), IoFile::Mode::create));
  return files;
}

// One path's files but its description, all space reserved.
void make_files(StorePath& path, std::uint32_t number, const Description& store, const StripeMap& map) {
  if (map.file_bytes(number) > 0) path.extents->preallocate(map.file_bytes(number));
  if (store.shape.durability == Durability::none) return;  // nobody opens it again
  path.extents->sync_data();
  path.journal.emplace(Journal::create(path.directory, store.journal_identity(number)));
  sync_folder(path.directory);  // no description without the files it describes
}

// The files of all paths; the descriptions come last, so that a crash in between leaves no store.
std::vector<StorePath> make_paths(const SwapStoreOptions& options, Description& store, const StripeMap& map,
                                  std::vector<IoFile> files,
                                  const std::vector<std::unique_ptr<CreationGuard>>& guards) {
  std::vector<StorePath> paths;
  for (std::uint32_t p = 0; p < files.size(); ++p) {
    StorePath path{options.directories[p], guards[p]->owns_folder(), std::move(files[p]), {}};
    try {
      make_files(path, p, store, map);
    } catch (const IoError& error) {
      if (!is_refusal_of_space(error.code())) throw;
      does_not_fit(path.directory, SwapStore::disk_bytes(store.blocks, options)[p],
                   file_system_of(path.directory).free_bytes, options.durability,
                   fmt::format(", but reserving it failed: {}", std::strerror(error.code())));
    }
    paths.push_back(std::move(path));
  }
  for (std::uint32_t p = 0; p < paths.size(); ++p) {
    store.path = p;
    store.owns_directory = paths[p].owns_directory;
    write_description(paths[p].directory, store);
    if (store.owns_directory) sync_folder(parent_of(paths[p].directory));
  }
  return paths;
}

}  // namespace
}  // namespace swap

std::unique_ptr<SwapStore> SwapStore::create(const SwapStoreOptions& options, std::vector<SwapBlock> blocks,
                                             IoEngine& engine) {
  using namespace swap;
  check_options(options);
  const std::vector<Bytes> needed = disk_bytes(blocks, options);
  const std::vector<std::string> names = distinct_directories(options.directories);
  const auto guards = guard_folders(options.directories, names);
  require_space(options, needed);
  for (const auto& guard : guards) guard->reclaim();

  std::vector<IoFile> files = create_extents(options);
  Description store{.store_id = random_id(),
                    .shape = shape_of(options),
                    .layout = options.layout,
                    .blocks = std::move(blocks),
                    .first_paths = {},
                    .directories = names};
  store.first_paths = place_blocks(store.blocks, store.shape, options.path_rates);
  StripeMap map = store.map();
  std::vector<StorePath> paths = make_paths(options, store, map, std::move(files), guards);
  for (std::size_t p = 0; p < paths.size(); ++p) paths[p].lock.emplace(guards[p]->release());
  auto stripes =
      std::make_shared<Stripes>(std::move(store.blocks), std::move(map), std::move(paths), PathsState{},
                                engine, options.parity_buffers, options.parity_memory);
  return std::make_unique<VersionedStore>(
      StoreParts{.durability = options.durability, .layout = options.layout, .stripes = std::move(stripes)});
}

std::vector<Bytes> SwapStore::disk_bytes(const std::vector<SwapBlock>& blocks,
                                         const SwapStoreOptions& options) {
  if (!options.directories.empty()) swap::check_options(options);
  const swap::StripeShape shape = swap::shape_of(options);
  const swap::StripeMap map(blocks, shape, swap::place_blocks(blocks, shape, options.path_rates));
  std::vector<Bytes> bytes;
  for (std::uint32_t path = 0; path < shape.paths; ++path)
    bytes.push_back(
        map.file_bytes(path) + shape.pins * swap::pin_file_bytes(map.entries()) +
        (shape.durability == Durability::step ? swap::Journal::reserved_bytes(map.entries()) : 0));
  return bytes;
}

Bytes SwapStore::parity_bytes(const std::vector<SwapBlock>& blocks, const SwapStoreOptions& options) {
  if (options.parity == 0) return 0;
  const swap::StripeShape shape = swap::shape_of(options);
  const swap::StripeMap map(blocks, shape, swap::place_blocks(blocks, shape, {}));
  return swap::ParityBuffers::bytes(map.largest_piece_bytes(), options.parity, options.parity_buffers);
}

Bytes SwapStore::buffer_alignment(std::size_t paths, std::uint32_t parity) {
  return swap::default_extent_alignment * (parity > 0 && parity < paths ? paths - parity : 1);
}

}  // namespace headrace
