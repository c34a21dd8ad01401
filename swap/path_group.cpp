#include "swap/path_group.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/log.h"
#include "headrace/swap_paths.h"
#include "swap/advice.h"

namespace headrace::swap {
using namespace files;

bool is_path_failure(int code) {
  switch (code) {
    case EIO:
    case ENXIO:
    case ENODEV:
    case EROFS:
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
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
  for (const std::string& file : pin_files(directory)) remove_file(join(directory, file));
  for (const char* name : {journal_name, extents_name}) remove_file(join(directory, name));
  for (const char* name : {description_name, journal_name, extents_name})
    remove_file(join(directory, name) + replacement_suffix);
}

PathGroup::PathGroup(std::vector<StorePath> paths, const StripeShape& shape, const PathsState& state)
    : paths_(std::move(paths)),
      parity_(shape.parity),
      keeps_steps_(shape.durability == Durability::step),
      keeps_pins_(shape.pins > 0),
      state_(state),
      damage_(size()) {
  for (std::uint32_t path = 0; path < size(); ++path)
    if (!paths_[path].lost.empty()) lost_ |= std::uint64_t{1} << path;
}

void PathGroup::lose(std::uint32_t path, std::string why, int code) {
  paths_[path].lost = std::move(why);
  paths_[path].lost_code = code;
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
  int code = EIO;  // where none of the causes is a call that failed
  for (std::uint32_t path = 0; path < size(); ++path) {
    if (!is_lost(path)) continue;
    lost.push_back(fmt::format("{} ({})", paths_[path].directory, paths_[path].lost));
    if (paths_[path].lost_code != 0) code = paths_[path].lost_code;
  }
  throw PathError(
      fmt::format("{} of {} swap paths are lost, and parity makes up for {}: {}. Bring them back and resume "
                  "from the last commit.",
                  lost.size(), paths_.size(), parity_, fmt::join(lost, "; ")),
      fmt::format("{}", fmt::join(lost_directories(), " and ")), code);
}

bool PathGroup::survives(std::uint32_t path, int code, std::string_view what) {
  return survives_because(path, code, fmt::format("{}: {}", what, std::strerror(code)));
}

bool PathGroup::survives_because(std::uint32_t path, int code, std::string why) {
  if (parity_ == 0 || !is_path_failure(code)) return false;
  const std::lock_guard lock(losing_);
  if (!is_lost(path)) go_on_without(path, std::move(why), code);
  return !too_many_lost();
}

void PathGroup::go_on_without(std::uint32_t path, std::string why, int code) {
  lose(path, std::move(why), code);
  if (!too_many_lost()) note_lost_paths();
  if (!too_many_lost()) tell_lost(path);
}

void PathGroup::tell_lost(std::uint32_t path) const {
  const std::uint32_t left = parity_ - std::min(parity_, lost_count());
  log_warning(fmt::format(
      "the swap path {} is lost ({}). The run goes on by parity, and {} more path{} may be lost. {}",
      paths_[path].directory, paths_[path].lost, left == 0 ? "no" : fmt::to_string(left),
      left == 1 ? "" : "s", how_to_bring_back()));
}

// What is not kept is not repaired either.
std::string PathGroup::how_to_bring_back() const {
  if (!keeps_steps_) return "Check its drive.";
  std::vector<SwapPath> lost;
  for (const std::string& directory : lost_directories()) {
    using State = SwapPath::State;
    lost.push_back(
        {.directory = directory, .state = folder_exists(directory) ? State::damaged : State::missing});
  }
  return fmt::format("After it: {}.", headrace::how_to_bring_back(lost, directories()));
}

void PathGroup::note_damage(const ExtentEntry& piece, std::string_view what) {
  const std::lock_guard lock(losing_);
  const std::uint32_t path = piece.path;
  if (is_lost(path)) return;
  if (!keeps_steps_)  // every write of a place has the same generation
    damage_.note(path);
  else if (!damage_.note(path, piece.offset, piece.generation))
    return;
  if (damage_.pieces(path) == 1)
    log_warning(fmt::format(
        "{}. It was rebuilt by parity; what else is damaged on {} is counted.{}", what,
        paths_[path].directory,
        keeps_steps_ ? fmt::format(" `{}` repairs what is on the disk.", repair_command({}, directories()))
                     : " Check its drive."));
  const bool is_owner = paths_[path].lock.has_value();  // who only reads decides nothing for the run
  if (is_owner && damage_.is_too_much(path, lost_.load(), parity_))
    go_on_without(path, fmt::format("{} damaged pieces were read from it", damage_.pieces(path)), 0);
}

void PathGroup::tell_damage() const {
  for (std::uint32_t path = 0; path < size(); ++path) {
    const std::uint64_t pieces = damage_.pieces(path);
    if (pieces <= 1 || is_lost(path)) continue;
    log_warning(fmt::format("{} damaged pieces were read from the swap path {} and rebuilt by parity. {}",
                            pieces, paths_[path].directory,
                            keeps_steps_ ? fmt::format("Check its drive; `{}` repairs what is on the disk.",
                                                       repair_command({}, directories()))
                                         : "Check its drive."));
  }
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
        lose(path, error.what(), error.code());
        if (!too_many_lost()) tell_lost(path);
        noted = false;
      }
    }
  }
}

void PathGroup::settle(const CommitHistory& history, const std::vector<std::uint32_t>& behind,
                       const Pins& pins) {
  if (lost_count() > 0) note_lost_paths();
  on_each_path("writing its journal", [&](StorePath& path) {
    if (path.journal->paths_state() != state_) path.journal->write_paths_state(state_);
  });
  on_each_path("writing its journal", [&](StorePath& path) {
    const auto number = static_cast<std::uint32_t>(&path - paths_.data());
    if (std::find(behind.begin(), behind.end(), number) != behind.end())
      path.journal->append_commit(*history.newest, {std::nullopt, history.superseded});
  });
  if (keeps_pins_)
    on_each_path("writing its pins",
                 [&](const StorePath& path) { settle_pins(path.directory, path.journal->identity(), pins); });
  if (too_many_lost()) throw_too_many_lost();
}

// A path's words for why it was lost may just be written by another thread; its bit comes after them.
bool PathGroup::owned_by_this_process() const {
  for (std::uint32_t path = 0; path < size(); ++path) {
    const auto& lock = paths_[path].lock;
    if (!is_lost(path) && !(lock && lock->owned_by_this_process())) return false;
  }
  return true;
}

void PathGroup::check_usable() const {
  if (too_many_lost()) throw_too_many_lost();
  for (std::uint32_t path = 0; path < size(); ++path)
    if (paths_[path].journal && !is_lost(path)) paths_[path].journal->check_usable();
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

void PathGroup::check_present(std::string_view not_done) {
  for (std::uint32_t path = 0; path < size(); ++path) {
    if (is_lost(path)) continue;
    const StorePath& there = paths_[path];
    check_present(path, extents_path(path), there.extents->fd(), not_done);
    check_present(path, join(there.directory, journal_name), there.journal->fd(), not_done);
    check_present(path, join(there.directory, lock_name), there.lock->fd(), not_done);
  }
}

void PathGroup::check_present(std::uint32_t path, const std::string& file, int fd,
                              std::string_view not_done) {
  const FileAt found = file_at(fd, file);
  if (found.is_same || is_lost(path)) return;
  const std::string what =
      fmt::format("{} {}", file,
                  found.code == ENOENT ? "was removed"
                  : found.code != 0    ? fmt::format("cannot be looked at: {}", std::strerror(found.code))
                                       : "was replaced by another file");
  const int code = found.code != 0 ? found.code : ENOENT;
  if (survives_because(path, code, what)) return;
  if (too_many_lost()) throw_too_many_lost();
  throw PathError(
      fmt::format("{}, while the run uses it: {}. {} and resume from the last commit.", what, not_done,
                  found.code == 0 || found.code == ENOENT
                      ? fmt::format("Bring the files of {} back (is its drive still mounted?)",
                                    paths_[path].directory)
                      : fmt::format("Check the drive and the permissions of {}", paths_[path].directory)),
      file, code);
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

// A folder whose flush failed may have the name or not, now or after the loss of power, whatever is done
// next: no commit may count on either, so none is made.
void PathGroup::settle_folder(StorePath& path, const std::function<void()>& change) {
  try {
    change();
  } catch (...) {
    path.journal->give_up();
    throw;
  }
}

// See [Note: pins in several folders] in format.h.
void PathGroup::write_pin(const Pin& pin) {
  on_each_path("pinning a version", [&](StorePath& path) {
    prepare_pin(path.directory, path.journal->identity(), pin);
    settle_folder(path, [&] { publish_pin(path.directory, pin.name); });
  });
}

void PathGroup::remove_pin(const std::string& name) {
  on_each_path("unpinning a version", [&](StorePath& path) {
    swap::remove_pin(path.directory, name);
    settle_folder(path, [&] { sync_folder(path.directory); });
  });
}

void PathGroup::close(bool remove_files) {
  tell_damage();
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
