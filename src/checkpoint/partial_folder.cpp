#include "src/checkpoint/partial_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "src/checkpoint/weight_files.h"
#include "src/checkpoint/whole_file.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// What an export writes, whole or in part.
bool is_exports(const std::string& file) {
  std::string name = file;
  if (name.ends_with(partial_suffix)) name.resize(name.size() - partial_suffix.size());
  return name == config_file_name || name == index_file_name ||
         (name.starts_with("model") && name.ends_with(".safetensors"));
}

// The names in it that are not its own; the others are removed.
std::vector<std::string> remove_own(const std::string& folder, PartialFolder::IsOwn is_own) {
  std::vector<std::string> others;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!is_own(name) || ::unlink(entry.path().c_str()) != 0) others.push_back(name);
  }
  return others;
}

// An empty folder is replaced when all is written: too late to find out that it cannot be.
void refuse_what_cannot_be_replaced(const std::string& folder) {
  const std::string name = fs::path(folder).filename().string();
  struct stat itself {
  }, above{};
  const bool is_link = ::lstat(folder.c_str(), &itself) != 0 || S_ISLNK(itself.st_mode);
  if (is_link || name.empty() || name == "." || name == ".." ||
      ::stat(files::parent_of(folder).c_str(), &above) != 0 || itself.st_dev != above.st_dev)
    throw UsageError(
        fmt::format("{} is a link, a mount point or no name of a folder's own, which cannot be "
                    "replaced. Give a new folder below it.",
                    folder));
}

}  // namespace

PartialFolder::PartialFolder(const std::string& folder) : PartialFolder(folder, is_exports) {}

PartialFolder::PartialFolder(const std::string& folder, IsOwn is_own)
    : folder_(without_slashes(folder)), partial_(folder_ + std::string(partial_suffix)), is_own_(is_own) {
  std::error_code error;
  const bool exists = fs::symlink_status(folder_, error).type() != fs::file_type::not_found;
  if (exists && !(fs::is_directory(folder_, error) && fs::is_empty(folder_, error)))
    throw UsageError(
        fmt::format("{} is there already, and is not an empty folder. Give a new one.", folder_));
  if (exists) refuse_what_cannot_be_replaced(folder_);
  if (!fs::is_directory(files::parent_of(folder_), error))
    throw UsageError(fmt::format("{} cannot be made: {} is not a folder. Create it (mkdir -p).", folder_,
                                 files::parent_of(folder_)));
  if (::mkdir(partial_.c_str(), 0755) != 0 && errno != EEXIST)
    throw UsageError(fmt::format("{} cannot be made: {}. Give a folder that can be written.", partial_,
                                 std::strerror(errno)));
  claim();
}

void PartialFolder::claim() {
  lock_ = Fd{::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!lock_) throw IoError("open", partial_, 0, 0, errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    throw UsageError(
        fmt::format("{} is being written by another export. Wait for it, or give another folder.", partial_));
  if (const auto others = remove_own(partial_, is_own_); !others.empty())
    throw UsageError(
        fmt::format("{} holds {}, which this does not write. Move it away, or give another folder.", partial_,
                    others.front()));
}

PartialFolder::~PartialFolder() {
  if (published_) return;
  try {
    remove_own(partial_, is_own_);
  } catch (const std::exception&) {  // the next export removes it
  }
  ::rmdir(partial_.c_str());
}

void PartialFolder::publish() {
  files::sync_folder(partial_);
  if (::rename(partial_.c_str(), folder_.c_str()) != 0) throw IoError("rename", partial_, 0, 0, errno);
  published_ = true;
  files::sync_folder(files::parent_of(folder_));
}

}  // namespace headrace
