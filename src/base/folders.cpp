#include "headrace/folders.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "headrace/errors.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string remedy_of(int code, std::string_view purpose) {
  if (code == EROFS)
    return fmt::format("Have the file system mounted writable, or give a folder {}.", purpose);
  if (code == EACCES || code == EPERM)
    return fmt::format("Have its owner allow it (chmod, chown), or give a folder {}.", purpose);
  return fmt::format("Give a folder {}.", purpose);
}

}  // namespace

std::string folder_problem(std::string_view name, const std::string& path, std::string_view purpose) {
  if (path.empty()) return fmt::format("{}: the value is empty. Give a folder {}.", name, purpose);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error && status.type() != fs::file_type::not_found)
    return fmt::format("{} {} cannot be looked at: {}. {}", name, path, error.message(),
                       remedy_of(error.value(), purpose));
  if (!fs::exists(status)) {
    const bool dangling = fs::is_symlink(fs::symlink_status(path, error));
    return fmt::format("{} {} does not exist{}. {}, or give a folder {}.", name, path,
                       dangling ? " (it is a dangling link)" : "",
                       dangling ? "Create what the link points to" : "Create it (mkdir -p)", purpose);
  }
  if (!fs::is_directory(status))
    return fmt::format("{} {} is not a folder. Give a folder {}.", name, path, purpose);
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    return fmt::format("{} {} cannot be written: {}. {}", name, path, std::strerror(errno),
                       remedy_of(errno, purpose));
  return "";
}

void require_usable_folder(std::string_view name, const std::string& path, std::string_view purpose) {
  if (const std::string problem = folder_problem(name, path, purpose); !problem.empty())
    throw UsageError(problem);
}

void require_different_folders(std::string_view name, const std::vector<std::string>& paths) {
  for (auto path = paths.begin(); path != paths.end(); ++path)
    for (auto other = paths.begin(); other != path; ++other) {
      std::error_code error;
      if (*path == *other || fs::equivalent(*path, *other, error))
        throw UsageError(
            fmt::format("{} {} and {} {} are the same folder. Give each once.", name, *other, name, *path));
    }
}

bool lies_in_memory(const std::string& path) {
  struct statfs system {};
  if (::statfs(path.c_str(), &system) != 0) return false;
  const auto type = static_cast<unsigned long>(system.f_type);
  return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

}  // namespace headrace
