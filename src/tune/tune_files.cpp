#include "src/tune/tune_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "headrace/errors.h"
#include "headrace/folders.h"
#include "headrace/log.h"

namespace headrace::tune {
namespace {

namespace fs = std::filesystem;

constexpr const char* folder_name = "headrace-tune";
constexpr const char* lock_name = "lock";

// A folder of that name that this program did not make is left alone.
void require_ours(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error) || fs::exists(folder / lock_name, error)) return;
  if (!fs::is_directory(folder, error) || !fs::is_empty(folder, error))
    throw UsageError(
        fmt::format("{} is in the way: `headrace tune` needs a folder of that name, and did not make this "
                    "one. Move it, or give another --swap-path.",
                    folder.string()));
}

bool same_file(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

void remove_contents(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != lock_name) fs::remove_all(entry.path());
}

// While the lock is held; its file goes last, so that nobody who makes it anew finds this one's files.
void remove_folder(const fs::path& folder) {
  remove_contents(folder);
  fs::remove(folder / lock_name);
  std::error_code another_has_begun;
  fs::remove(folder, another_has_begun);
}

}  // namespace

TuneFiles::Place TuneFiles::claim(const std::string& swap_path) {
  require_usable_folder("--swap-path", swap_path, "on the drive to tune for");
  const fs::path folder = fs::path(swap_path) / folder_name;
  const std::string lock = (folder / lock_name).string();
  require_ours(folder);
  while (true) {  // the one that held the lock may have removed its file since it was opened
    if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
      throw IoError("make folder", folder.string(), 0, 0, errno);
    Fd fd{::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)};
    if (fd.get() < 0) {
      if (errno == ENOENT) continue;
      throw IoError("open", lock, 0, 0, errno);
    }
    const bool locked = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) throw IoError("lock", lock, 0, 0, errno);
    if (!locked)
      throw UsageError(
          fmt::format("--swap-path {}: another `headrace tune` measures there. Wait until it has ended, or "
                      "give another folder.",
                      swap_path));
    if (!same_file(fd.get(), lock)) continue;
    remove_contents(folder);
    return {folder.string(), std::move(fd)};
  }
}

TuneFiles::TuneFiles(const std::vector<std::string>& swap_paths) {
  for (const std::string& path : swap_paths) places_.push_back(claim(path));
}

TuneFiles::~TuneFiles() {
  for (const Place& place : places_) {
    try {
      remove_folder(place.folder);
    } catch (const fs::filesystem_error& error) {
      log_warning(fmt::format("{} could not be removed: {}.", place.folder, error.code().message()));
    }
  }
}

std::vector<std::string> TuneFiles::paths_of(const std::string& name) const {
  std::vector<std::string> paths;
  for (const Place& place : places_) paths.push_back((fs::path(place.folder) / name).string());
  return paths;
}

void TuneFiles::remove(const std::string& name) const {
  for (const std::string& path : paths_of(name)) fs::remove_all(path);
}

}  // namespace headrace::tune
