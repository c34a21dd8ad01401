#include "src/checkpoint/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/shell_words.h"
#include "src/checkpoint/manifest.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "step-", partial_suffix = ".partial";
constexpr const char* latest_name = "latest";
constexpr const char* lock_name = "lock";

// The number behind `key` near the beginning of a manifest; none where there is none.
std::optional<std::uint64_t> sequence_in(const std::string& manifest) {
  try {
    const Fd fd = files::open_file(manifest, O_RDONLY);
    char text[512];
    const ssize_t got = ::pread(fd.get(), text, sizeof text, 0);
    if (got <= 0) return std::nullopt;
    const std::string_view head(text, static_cast<std::size_t>(got));
    constexpr std::string_view key = R"("sequence":)";
    const std::size_t at = head.find(key);
    std::uint64_t sequence = 0;
    if (at == std::string_view::npos ||
        std::from_chars(head.data() + at + key.size(), head.data() + head.size(), sequence).ec != std::errc{})
      return std::nullopt;
    return sequence;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::uint64_t> sequence_of(const std::string& path) {
  const auto sequence = sequence_in(files::join(path, manifest_name));
  return sequence ? sequence : sequence_in(files::join(path, manifest_copy_name));
}

// None where there is no such folder; what cannot be listed may hold checkpoints, and is an IoError.
std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw IoError("list", directory, 0, 0, error.value());
  std::ranges::sort(names);
  return names;
}

// With all folders above it; each is on the disk when this returns.
void make_folders(const std::string& directory) {
  if (files::folder_exists(directory)) return;
  const std::string above = files::parent_of(directory);
  make_folders(above);
  const int code = files::make_folder(directory);
  if (code != 0 && code != EEXIST) throw IoError("make the folder", directory, 0, 0, code);
  files::sync_folder(above);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw IoError("rename", from, 0, 0, errno);
}

// Where `to` exists, the two change places.
void exchange_or_rename(const std::string& from, const std::string& to) {
  if (!files::folder_exists(to)) return rename_path(from, to);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0)
    throw IoError("exchange", from, 0, 0, errno);
}

}  // namespace

std::optional<std::uint64_t> step_of_name(const std::string& name) {
  std::uint64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc{} || end != name.data() + name.size() || name != checkpoint_name(step))
    return std::nullopt;
  return step;
}

bool is_name_of_partial(const std::string& name) {
  return name.starts_with(prefix) && name.ends_with(partial_suffix);
}

std::string checkpoint_name(std::uint64_t step) {
  return fmt::format("{}{:08}", prefix, step);
}

CheckpointFolder look_into(const std::string& directory) {
  CheckpointFolder folder;
  for (const std::string& name : names_in(directory)) {
    const std::string path = files::join(directory, name);
    if (is_name_of_partial(name)) folder.partial.push_back(path);
    const std::optional<std::uint64_t> step = step_of_name(name);
    if (!step) continue;
    if (const auto sequence = sequence_of(path))
      folder.found.push_back({path, *step, *sequence});
    else
      folder.damaged.push_back(path);
  }
  std::ranges::sort(folder.found, {},
                    [](const FoundCheckpoint& one) { return std::pair(one.sequence, one.step); });
  return folder;
}

CheckpointFolder seen_of(const std::string& directory) {
  try {
    return look_into(directory);
  } catch (const IoError&) {
    return {};
  }
}

std::vector<FoundCheckpoint> find_checkpoints(const std::string& directory) {
  return look_into(directory).found;
}

std::vector<std::string> damaged_checkpoints(const std::string& directory) {
  return look_into(directory).damaged;
}

void require_free_checkpoints(const std::string& directory) {
  (void)lock_checkpoints(directory);
}

Fd lock_checkpoints(const std::string& directory) {
  make_folders(directory);
  Fd lock = files::open_file(files::join(directory, lock_name), O_RDWR | O_CREAT);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    throw UsageError(
        fmt::format("another job saves its checkpoints in {}. Wait for its end, or give this one another "
                    "--checkpoint-dir.",
                    directory));
  return lock;
}

Fd lock_beside(const std::string& path, std::string_view instead) {
  const std::string above = files::join(files::parent_of(files::absolute(path)), lock_name);
  if (!files::file_exists(above)) return {};
  Fd lock = files::open_file(above, O_RDWR);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    throw UsageError(fmt::format(
        "a job saves its checkpoints beside {}, and may remove it. Wait for its end, or {}.", path, instead));
  return lock;
}

RepairLocks lock_for_repair(const std::string& path) {
  RepairLocks locks;
  locks.directory = lock_beside(path, "repair a copy of it elsewhere");
  locks.checkpoint = files::open_file(path, O_RDONLY | O_DIRECTORY);
  if (::flock(locks.checkpoint.get(), LOCK_EX | LOCK_NB) != 0)
    throw UsageError(fmt::format("{} is being repaired by another process. Wait for its end.", path));
  return locks;
}

void write_checkpoint_text(const std::string& folder, std::string_view name, const std::string& text) {
  files::prepare_replacement(folder, name, std::as_bytes(std::span(text)));
  files::publish_replacement(folder, name);
}

std::string partial_checkpoint(const std::string& directory, std::uint64_t step) {
  return files::join(directory, checkpoint_name(step)) + std::string(partial_suffix);
}

void begin_checkpoint(const std::string& directory, std::uint64_t step) {
  make_folders(directory);  // on a host of its own
  for (const std::string& name : names_in(directory))
    if (is_name_of_partial(name)) abandon_checkpoint(files::join(directory, name));
  const std::string partial = partial_checkpoint(directory, step);
  if (const int code = files::make_folder(partial); code != 0)
    throw IoError("make the folder", partial, 0, 0, code);
}

void publish_checkpoint(const std::string& directory, std::uint64_t step, const std::string& manifest,
                        bool with_copy) {
  const std::string partial = partial_checkpoint(directory, step), name = checkpoint_name(step);
  if (with_copy) write_checkpoint_text(partial, manifest_copy_name, manifest);
  write_checkpoint_text(partial, manifest_name, manifest);
  exchange_or_rename(partial, files::join(directory, name));
}

void name_latest(const std::string& directory, std::uint64_t step) {
  files::sync_folder(directory);
  write_checkpoint_text(directory, latest_name, checkpoint_name(step) + '\n');
  abandon_checkpoint(partial_checkpoint(directory, step));
}

void abandon_checkpoint(const std::string& partial) noexcept {
  std::error_code ignored;
  fs::remove_all(partial, ignored);
}

void rotate_checkpoints(const std::string& directory, std::uint64_t keep_last) {
  std::vector<FoundCheckpoint> found = find_checkpoints(directory);
  if (keep_last == 0 || found.size() <= keep_last) return;
  found.resize(found.size() - keep_last);
  const auto hidden = [](const FoundCheckpoint& old) { return old.path + std::string(partial_suffix); };
  for (const FoundCheckpoint& old : found) rename_path(old.path, hidden(old));
  files::sync_folder(directory);  // before their files go
  for (const FoundCheckpoint& old : found) abandon_checkpoint(hidden(old));
}

}  // namespace headrace
