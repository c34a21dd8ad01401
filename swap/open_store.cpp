// How a folder becomes a swap store, and how a store is opened again.
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "swap/files.h"
#include "swap/versioned_store.h"

namespace headrace {
namespace swap {
namespace {

// Of a store of one path.
const std::string& only(const SwapStore::Directories& directories) {
  HEADRACE_CHECK(directories.size() == 1, "a swap store of {} paths", directories.size());
  return directories.front();
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_refusal_of_space(int code) {
  return code == ENOSPC || code == EDQUOT || code == EFBIG;
}

std::string parent_of(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::size_t slash = trimmed.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : trimmed.substr(0, slash);
}

// Makes the folder if its parent exists; returns whether it was made.
bool make_folder(const std::string& path) {
  if (path.empty()) throw UsageError("the swap path is empty; give the folder with --swap-path.");
  if (::mkdir(path.c_str(), 0755) == 0) return true;
  const int code = errno;
  if (is_folder(path)) return false;
  if (is_refusal_of_space(code))
    throw DoesNotFit(
        fmt::format("the swap folder {} cannot be made: {}. Free some space, or give --swap-path a folder on "
                    "a larger disk.",
                    path, std::strerror(code)));
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("the swap folder {} cannot be used: {}", path, why));
  };
  if (code == EEXIST && ::access(path.c_str(), F_OK) != 0)
    refuse("it is a symbolic link to something that does not exist. Remove the link or make its target.");
  if (code == EEXIST) refuse("it is a file. Give a folder with --swap-path.");
  if (code == ENOENT)
    refuse(fmt::format("its parent {} does not exist. Make it, or correct --swap-path.", parent_of(path)));
  refuse(fmt::format("{}. Choose a --swap-path that this user can write to.", std::strerror(code)));
  return false;
}

// Bytes on disk of the files a stale store left, which create() is about to free.
Bytes reclaimable_bytes(const std::string& directory) {
  Bytes bytes = 0;
  for (const char* name : {extents_name, journal_name}) {
    struct stat status {};
    if (::lstat(join(directory, name).c_str(), &status) == 0)
      bytes += static_cast<Bytes>(status.st_blocks) * 512;
  }
  return bytes;
}

Bytes free_bytes(const std::string& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) throw IoError("statvfs", directory, 0, 0, errno);
  return static_cast<Bytes>(status.f_bavail) * status.f_frsize;
}

[[noreturn]] void does_not_fit(const std::string& directory, Bytes needed, Bytes available,
                               Durability durability, std::string_view why) {
  throw DoesNotFit(
      fmt::format("the swap store in {} needs {} ({} bytes) and its file system has {} ({} bytes) free{}. "
                  "Free some space, or give "
                  "--swap-path a folder on a larger disk{}.",
                  directory, format_bytes(needed), needed, format_bytes(available), available, why,
                  durability == Durability::step
                      ? ", or use durability \"none\" (half the space, but a crashed run cannot be resumed)"
                      : ""));
}

std::uint64_t random_id() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// Takes back what a create() that failed has made.
class CreationGuard {
 public:
  explicit CreationGuard(const SwapStoreOptions& options)
      : directory_(only(options.directories)), made_folder_(make_folder(only(options.directories))) {
    try {
      lock_.emplace(StoreLock::acquire(directory_));
    } catch (...) {
      if (made_folder_) ::rmdir(directory_.c_str());
      throw;
    }
  }
  CreationGuard(const CreationGuard&) = delete;
  CreationGuard& operator=(const CreationGuard&) = delete;
  ~CreationGuard() {
    if (!lock_) return;
    try {
      remove_store_files(directory_);
    } catch (const IoError& error) {
      log_warning(error.what());
    }
    lock_->remove_file_on_release();
    lock_.reset();
    if (made_folder_) ::rmdir(directory_.c_str());
  }
  bool made_folder() const { return made_folder_; }
  const StoreLock& lock() const { return *lock_; }
  StoreLock release() {
    StoreLock lock = std::move(*lock_);
    lock_.reset();
    return lock;
  }

 private:
  std::string directory_;
  bool made_folder_;
  std::optional<StoreLock> lock_;
};

// A run that takes over the folder of an earlier one also takes over the duty to remove it.
bool made_by_stale_store(const std::string& directory) {
  try {
    return file_exists(join(directory, description_name)) && read_description(directory).owns_directory;
  } catch (const Error&) {
    return false;  // damaged or of another version: it is only reclaimed
  }
}

void reclaim_stale_store(const std::string& directory, const SwapOwner& owner) {
  if (!file_exists(join(directory, description_name)) && !file_exists(join(directory, extents_name))) return;
  log_info(fmt::format("reclaiming the swap store in {}{}", directory,
                       owner.state == SwapOwner::State::none
                           ? ""
                           : fmt::format(": process {} on {} is gone", owner.pid, owner.host)));
  remove_store_files(directory);
}

// Makes the files, all space reserved; store.json comes last, so that a crash in between leaves no store.
StoreParts make_files(const SwapStoreOptions& options, std::vector<SwapBlock> blocks, bool owns_folder) {
  const std::string& directory = only(options.directories);
  IoFile file = IoFile::open(join(directory, extents_name), IoFile::Mode::create);
  Description description{
      random_id(), options.durability, std::max<Bytes>(default_extent_alignment, file.offset_alignment()),
      owns_folder, options.layout,     blocks};
  const ExtentMap map(blocks, description.extent_alignment, options.durability);
  if (map.file_bytes() > 0) file.preallocate(map.file_bytes());
  file.sync_data();
  std::optional<Journal> journal;
  if (options.durability == Durability::step)
    journal.emplace(
        Journal::create(directory, description.store_id, static_cast<std::uint32_t>(blocks.size())));
  sync_folder(directory);  // no description without the files it describes
  write_description(directory, description);
  if (owns_folder) sync_folder(parent_of(directory));
  auto extents = std::make_shared<ExtentFile>(ExtentFile{std::move(file), std::move(blocks)});
  return {directory, std::move(description), std::move(extents), map, std::nullopt, std::move(journal), {}};
}

void check_table(const CommitRecord& record, const ExtentMap& map, const std::string& directory) {
  for (std::uint32_t block = 0; block < record.table.size(); ++block)
    if (record.table[block].generation > 0 && !map.is_extent_of(block, record.table[block].offset))
      throw CorruptData(fmt::format("{} places block {} of step {} at offset {}, where it has no extent.",
                                    join(directory, journal_name), block, record.commit.step,
                                    record.table[block].offset));
}

std::shared_ptr<ExtentFile> open_extents(const std::string& directory, const Description& description,
                                         const ExtentMap& map, IoFile::Mode mode) {
  const std::string path = join(directory, extents_name);
  IoFile file = IoFile::open(path, mode);
  if (description.extent_alignment % file.offset_alignment() != 0)
    file = IoFile::open(path, mode, false);  // the store was copied to a disk with larger blocks
  if (file.size_bytes() < map.file_bytes())
    throw CorruptData(
        fmt::format("{} is cut short: it has {} bytes and should have {}. Start the run again without "
                    "resuming, or restore the file.",
                    path, file.size_bytes(), map.file_bytes()));
  return std::make_shared<ExtentFile>(ExtentFile{std::move(file), description.blocks});
}

void refuse_other_run(const SwapStoreOptions& options, const Description& description) {
  if (description.durability != Durability::step)
    throw UsageError(
        fmt::format("the swap store in {} was written with durability \"none\" and cannot be resumed; "
                    "start without --resume swap.",
                    only(options.directories)));
  if (options.durability != Durability::step)
    throw UsageError(fmt::format("the swap store in {} has durability \"step\"; resume it with the same.",
                                 only(options.directories)));
  if (description.layout != options.layout)
    throw UsageError(
        fmt::format("the swap store in {} is of another run: {}. Resume with the settings it was made "
                    "with, or start without --resume swap.",
                    only(options.directories), layout_difference(description.layout, options.layout)));
}

JournalContents read_journal(const std::string& directory, const Description& description,
                             const ExtentMap& map) {
  JournalContents contents =
      Journal::read(directory, description.store_id, static_cast<std::uint32_t>(description.blocks.size()));
  for (const auto* record : {&contents.history.superseded, &contents.history.newest})
    if (*record) check_table(**record, map, directory);
  return contents;
}

}  // namespace
}  // namespace swap

std::unique_ptr<SwapStore> SwapStore::create(const SwapStoreOptions& options, std::vector<SwapBlock> blocks,
                                             IoEngine& engine) {
  using namespace swap;
  const std::string& directory = only(options.directories);
  const Bytes needed = disk_bytes(blocks, options).front();
  CreationGuard guard(options);
  if (const Bytes available = free_bytes(directory) + reclaimable_bytes(directory); needed > available)
    does_not_fit(directory, needed, available, options.durability, "");
  const bool owns_folder = guard.made_folder() || made_by_stale_store(directory);
  reclaim_stale_store(directory, guard.lock().previous_owner());
  try {
    StoreParts parts = make_files(options, std::move(blocks), owns_folder);
    parts.lock.emplace(guard.release());
    return std::make_unique<VersionedStore>(std::move(parts), engine);
  } catch (const IoError& error) {
    if (!is_refusal_of_space(error.code())) throw;
    does_not_fit(directory, needed, free_bytes(directory), options.durability,
                 fmt::format(", but reserving it failed: {}", std::strerror(error.code())));
  }
}

std::unique_ptr<SwapStore> SwapStore::open(const SwapStoreOptions& options, IoEngine& engine) {
  using namespace swap;
  const std::string& directory = only(options.directories);
  (void)read_description(directory);  // before the lock, which would leave a file where there is no store
  std::optional<StoreLock> lock = StoreLock::acquire(directory);
  Description description = read_description(directory);
  refuse_other_run(options, description);
  const ExtentMap map(description.blocks, description.extent_alignment, description.durability);
  std::shared_ptr<ExtentFile> extents = open_extents(directory, description, map, IoFile::Mode::read_write);
  JournalContents contents = read_journal(directory, description, map);
  if (!contents.history.newest)
    throw UsageError(
        fmt::format("the swap store in {} holds no committed step: its run ended before the first one. "
                    "Start without --resume swap.",
                    directory));
  if (contents.torn_bytes > 0)
    log_info(fmt::format("the last record of {} is incomplete ({} bytes): continuing from step {}",
                         join(directory, journal_name), contents.torn_bytes,
                         contents.history.newest->commit.step));
  Journal journal = Journal::open(directory, description.store_id,
                                  static_cast<std::uint32_t>(description.blocks.size()), contents);
  return std::make_unique<VersionedStore>(
      StoreParts{directory, std::move(description), std::move(extents), map, std::move(lock),
                 std::move(journal), std::move(contents.history)},
      engine);
}

std::unique_ptr<SwapStore> SwapStore::open_read_only(const Directories& directories, IoEngine& engine) {
  using namespace swap;
  const std::string& directory = only(directories);
  Description description = read_description(directory);
  const ExtentMap map(description.blocks, description.extent_alignment, description.durability);
  std::shared_ptr<ExtentFile> extents = open_extents(directory, description, map, IoFile::Mode::read_only);
  CommitHistory history;
  if (description.durability == Durability::step) history = read_journal(directory, description, map).history;
  return std::make_unique<VersionedStore>(StoreParts{directory, std::move(description), std::move(extents),
                                                     map, std::nullopt, std::nullopt, std::move(history)},
                                          engine);
}

SwapDescription SwapStore::describe(const Directories& directories) {
  using namespace swap;
  const std::string& directory = only(directories);
  Description description = read_description(directory);
  const ExtentMap map(description.blocks, description.extent_alignment, description.durability);
  SwapDescription result;
  if (description.durability == Durability::step) {
    CommitHistory history = read_journal(directory, description, map).history;
    for (auto* record : {&history.superseded, &history.newest})
      if (*record) result.commits.push_back(std::move((*record)->commit));
  }
  result.durability = description.durability;
  result.layout = std::move(description.layout);
  result.blocks = std::move(description.blocks);
  result.extent_alignment = description.extent_alignment;
  result.extents_bytes = map.file_bytes();
  result.owner = read_owner(directory);
  return result;
}

void SwapStore::require_free(const Directories& directories) {
  const std::string& directory = swap::only(directories);
  if (const SwapOwner owner = swap::read_owner(directory); owner.state == SwapOwner::State::alive)
    swap::refuse_owner(directory, owner);
}

void SwapStore::remove(const Directories& directories) {
  const std::string& directory = swap::only(directories);
  const bool owns_folder = swap::made_by_stale_store(directory);
  {
    swap::StoreLock lock = swap::StoreLock::acquire(directory);
    swap::remove_store_files(directory);
    lock.remove_file_on_release();
  }
  if (owns_folder) ::rmdir(directory.c_str());  // stays when something else is in it
}

std::vector<Bytes> SwapStore::disk_bytes(const std::vector<SwapBlock>& blocks,
                                         const SwapStoreOptions& options) {
  const swap::ExtentMap map(blocks, swap::default_extent_alignment, options.durability);
  return {map.file_bytes() +
          (options.durability == Durability::step ? swap::Journal::reserved_bytes(blocks.size()) : 0)};
}

Bytes SwapStore::parity_bytes(const std::vector<SwapBlock>&, const SwapStoreOptions&) {
  return 0;
}

Bytes SwapStore::buffer_alignment(std::size_t, std::uint32_t) {
  return swap::default_extent_alignment;
}

}  // namespace headrace
