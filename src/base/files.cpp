#include "headrace/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "headrace/errors.h"

namespace headrace::files {

std::string join(const std::string& directory, std::string_view name) {
  return fmt::format("{}/{}", directory, name);
}

std::string parent_of(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::size_t slash = trimmed.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : trimmed.substr(0, slash);
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (error) return path;
  // Of a relative path whose first folder is not there it would make no absolute one.
  std::string result = std::filesystem::weakly_canonical(whole, error).lexically_normal().string();
  if (error) result = whole.string();
  while (result.size() > 1 && result.ends_with('/')) result.pop_back();
  return result;
}

// A pipe in the place of a file would hold open(2) up until somebody writes into it.
Fd open_file(const std::string& path, int flags) {
  if (struct stat status{}; ::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode))
    throw CorruptData(fmt::format("{} is a pipe, not a file.", path));
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) throw IoError("open", path, 0, 0, errno);
  return Fd{fd};
}

// What may not be looked at counts as there: opening it says why it cannot be read.
bool file_exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

bool folder_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

FileAt file_at(int fd, const std::string& path) {
  struct stat mine {
  }, there{};
  if (::fstat(fd, &mine) != 0 || ::stat(path.c_str(), &there) != 0) return {.is_same = false, .code = errno};
  return {.is_same = mine.st_dev == there.st_dev && mine.st_ino == there.st_ino, .code = 0};
}

std::vector<std::byte> read_file(const std::string& path) {
  const Fd fd = open_file(path, O_RDONLY);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw IoError("fstat", path, 0, 0, errno);
  std::vector<std::byte> contents(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got =
        ::pread(fd.get(), contents.data() + done, contents.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("read", path, done, contents.size() - done, errno);
    if (got == 0) break;  // shrunk meanwhile: a store that is being written is inspected
    done += static_cast<std::size_t>(got);
  }
  contents.resize(done);
  return contents;
}

void write_at(int fd, const std::string& path, std::uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t put = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw IoError("write", path, offset, data.size(), put < 0 ? errno : ENOSPC);
    data = data.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

void truncate_file(int fd, const std::string& path, std::uint64_t bytes) {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) throw IoError("truncate", path, bytes, 0, errno);
}

void reserve_file(int fd, const std::string& path, std::uint64_t bytes) {
  if (::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0 && errno != EOPNOTSUPP)
    throw IoError("reserve", path, 0, bytes, errno);
}

void sync_file(int fd, const std::string& path) {
  if (::fdatasync(fd) != 0) throw IoError("fdatasync", path, 0, 0, errno);
}

void sync_folder(const std::string& directory) {
  const Fd fd = open_file(directory, O_RDONLY | O_DIRECTORY);
  if (::fsync(fd.get()) != 0) throw IoError("fsync", directory, 0, 0, errno);
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw IoError("unlink", path, 0, 0, errno);
}

int make_folder(const std::string& path) {
  return ::mkdir(path.c_str(), 0755) == 0 ? 0 : errno;
}

void remove_folder(const std::string& path) noexcept {
  ::rmdir(path.c_str());
}

FileSystem file_system_of(const std::string& directory) {
  struct statvfs space {};
  struct stat status {};
  if (::statvfs(directory.c_str(), &space) != 0 || ::stat(directory.c_str(), &status) != 0)
    throw IoError("statvfs", directory, 0, 0, errno);
  return {status.st_dev, static_cast<Bytes>(space.f_bavail) * space.f_frsize};
}

Bytes bytes_on_disk(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? static_cast<Bytes>(status.st_blocks) * 512 : 0;
}

void prepare_replacement(const std::string& directory, std::string_view name,
                         std::span<const std::byte> contents) {
  const std::string path = join(directory, name) + replacement_suffix;
  try {
    const Fd fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
    write_at(fd.get(), path, 0, contents);
    sync_file(fd.get(), path);
  } catch (const IoError&) {
    ::unlink(path.c_str());
    throw;
  }
}

void publish_replacement(const std::string& directory, std::string_view name) {
  const std::string path = join(directory, name);
  const std::string replacement = path + replacement_suffix;
  if (::rename(replacement.c_str(), path.c_str()) != 0) throw IoError("rename", replacement, 0, 0, errno);
  sync_folder(directory);
}

}  // namespace headrace::files
