#include "swap/path_group.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "swap/files.h"

namespace headrace::swap {

bool is_path_failure(int code) {
  switch (code) {
    case EIO:
    case ENXIO:
    case ENODEV:
    case EROFS:
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ESTALE:
    case ENOMEDIUM:
    case EREMOTEIO:
    case ETIMEDOUT:
    case ENOTCONN:
    case ESHUTDOWN:
    case EHOSTDOWN:
    case EUCLEAN:
    case EBADMSG:
    case ENODATA:
    case EILSEQ:
      return true;
    default:
      return false;
  }
}

void remove_store_files(const std::string& directory) {
  if (const std::string description = join(directory, description_name); file_exists(description)) {
    remove_file(description);  // first what makes it a store: after a crash it is whole or none
    sync_folder(directory);
  }
  for (const char* name : {journal_name, extents_name}) remove_file(join(directory, name));
  for (const char* name : {description_name, journal_name, extents_name})
    remove_file(join(directory, name) + replacement_suffix);
}

PathGroup::PathGroup(std::vector<StorePath> paths, std::uint32_t parity, const PathsState& state)
    : paths_(std::move(paths)), parity_(parity), state_(state) {
  for (std::uint32_t path = 0; path < size(); ++path)
    if (!paths_[path].lost.empty()) lost_ |= std::uint64_t{1} << path;
}

void PathGroup::lose(std::uint32_t path, std::string why) {
  paths_[path].lost = std::move(why);
  lost_.fetch_or(std::uint64_t{1} << path, std::memory_order_release);
}

std::string PathGroup::extents_path(std::uint32_t path) const {
  return join(paths_[path].directory, extents_name);
}

std::vector<std::string> PathGroup::lost_directories() const {
  std::vector<std::string> lost;
  for (std::uint32_t path = 0; path < size(); ++path)
    if (is_lost(path)) lost.push_back(paths_[path].directory);
  return lost;
}

std::vector<std::string> PathGroup::directories() const {
  std::vector<std::string> all;
  for (const StorePath& path : paths_) all.push_back(path.directory);
  return all;
}

void PathGroup::throw_too_many_lost() const {
  std::vector<std::string> lost;
  for (std::uint32_t path = 0; path < size(); ++path)
    if (is_lost(path)) lost.push_back(fmt::format("{} ({})", paths_[path].directory, paths_[path].lost));
  throw IoError(fmt::format("{} of {} swap paths are lost, and parity makes up for {}: {}. Bring them back "
                            "and resume from the last commit. The use",
                            lost.size(), paths_.size(), parity_, fmt::join(lost, ", ")),
                fmt::format("{}", fmt::join(lost_directories(), " and ")), 0, 0, EIO);
}

bool PathGroup::survives(std::uint32_t path, int code, std::string_view what) {
  if (parity_ == 0 || !is_path_failure(code)) return false;
  const std::lock_guard lock(losing_);
  if (!is_lost(path)) {
    const StorePath& failed = paths_[path];
    lose(path, fmt::format("{}: {}", what, std::strerror(code)));
    if (!too_many_lost()) note_lost_paths();
    if (!too_many_lost()) {
      const std::uint32_t left = parity_ - std::min(parity_, lost_count());
      log_warning(fmt::format(
          "the swap path {} is lost ({}). The run goes on by parity, and {} more path{} may be lost. After "
          "it, "
          "`headrace inspect --repair` with all swap paths brings the path back.",
          failed.directory, failed.lost, left == 0 ? "no" : fmt::to_string(left), left == 1 ? "" : "s"));
    }
  }
  return !too_many_lost();
}

// See [Note: one commit in several journals] in format.h.
void PathGroup::note_lost_paths() {
  for (bool noted = false; !noted && !too_many_lost();) {
    noted = true;
    ++state_.epoch;
    for (std::uint32_t path = 0; path < size(); ++path)
      if (is_lost(path)) state_.lost |= std::uint64_t{1} << path;
    for (std::uint32_t path = 0; path < size(); ++path) {
      if (is_lost(path) || !paths_[path].journal || paths_[path].journal->broken()) continue;
      try {
        paths_[path].journal->write_paths_state(state_);
      } catch (const IoError& error) {
        if (!is_path_failure(error.code())) {
          paths_[path].journal->give_up();
          continue;
        }
        lose(path, error.what());
        log_warning(fmt::format("the swap path {} is lost ({})", paths_[path].directory, error.what()));
        noted = false;
      }
    }
  }
}

void PathGroup::settle(const CommitHistory& history, const std::vector<std::uint32_t>& behind) {
  if (lost_count() > 0) note_lost_paths();
  on_each_path("writing its journal", [&](StorePath& path) {
    if (path.journal->paths_state() != state_) path.journal->write_paths_state(state_);
  });
  on_each_path("writing its journal", [&](StorePath& path) {
    const auto number = static_cast<std::uint32_t>(&path - paths_.data());
    if (std::find(behind.begin(), behind.end(), number) != behind.end())
      path.journal->append_commit(*history.newest, {std::nullopt, history.superseded});
  });
  if (too_many_lost()) throw_too_many_lost();
}

bool PathGroup::owned_by_this_process() const {
  return std::all_of(paths_.begin(), paths_.end(), [](const StorePath& path) {
    return !path.lost.empty() || (path.lock && path.lock->owned_by_this_process());
  });
}

void PathGroup::check_usable() const {
  if (too_many_lost()) throw_too_many_lost();
  for (const StorePath& path : paths_)
    if (path.journal && path.lost.empty()) path.journal->check_usable();
}

// Runs the action on every path that is left.
void PathGroup::on_each_path(std::string_view what, const Action& action) {
  for (std::uint32_t path = 0; path < size(); ++path) {
    if (is_lost(path)) continue;
    try {
      action(paths_[path]);
    } catch (const IoError& error) {
      if (!survives(path, error.code(), what)) {
        if (too_many_lost()) throw_too_many_lost();
        throw;
      }
    }
  }
}

void PathGroup::check_present() {
  on_each_path("its files were removed", [](const StorePath& path) {
    const std::string extents = join(path.directory, extents_name);
    if (!is_file_at(path.extents->fd(), extents)) throw IoError("check", extents, 0, 0, ENOENT);
    if (!path.journal->exists()) throw IoError("check", join(path.directory, journal_name), 0, 0, ENOENT);
    if (!path.lock->exists()) throw IoError("check", join(path.directory, lock_name), 0, 0, ENOENT);
  });
}

void PathGroup::flush_extents() {
  on_each_path("flushing its data", [](StorePath& path) { path.extents->sync_data(); });
}

void PathGroup::append_commit(const CommitRecord& record, const CommitHistory& history) {
  std::uint32_t reached = 0;
  try {
    on_each_path("writing its journal", [&](StorePath& path) {
      reached = static_cast<std::uint32_t>(&path - paths_.data()) + 1;
      path.journal->append_commit(record, history);
    });
  } catch (...) {
    take_back(reached, history);
    throw;
  }
}

// After a commit that got as far as the first `count` paths. A journal that cannot be cleaned up is broken.
void PathGroup::take_back(std::uint32_t count, const CommitHistory& history) {
  for (std::uint32_t path = 0; path < count; ++path) {
    if (is_lost(path) || paths_[path].journal->broken()) continue;
    try {
      paths_[path].journal->take_back(history);
    } catch (const IoError& error) {
      if (!survives(path, error.code(), "writing its journal")) log_warning(error.what());
    } catch (const std::exception& error) {
      paths_[path].journal->give_up();
      log_warning(error.what());
    }
  }
}

void PathGroup::append_release(const CommitRecord& newest) {
  on_each_path("writing its journal", [&](StorePath& path) { path.journal->append_release(newest); });
}

void PathGroup::drop_newest(const CommitRecord& remaining) {
  on_each_path("writing its journal", [&](StorePath& path) { path.journal->drop_newest(remaining); });
}

void PathGroup::close(bool remove_files) {
  for (StorePath& path : paths_) {
    path.journal.reset();
    if (!path.lock || !path.lock->owned_by_this_process()) continue;
    if (remove_files) {
      try {
        remove_store_files(path.directory);
      } catch (const IoError& error) {
        if (path.lost.empty()) log_warning(error.what());
      }
      path.lock->remove_file_on_release();
    }
    path.lock.reset();
    if (remove_files && path.owns_directory) remove_folder(path.directory);
  }
}

}  // namespace headrace::swap
