#include "src/checkpoint/whole_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "headrace/errors.h"

namespace headrace {

WholeFile::WholeFile(const std::string& folder, std::string_view name, Bytes bytes)
    : folder_(folder),
      path_(fmt::format("{}/{}", folder, name)),
      partial_(path_ + std::string(partial_suffix)) {
  fd_ = Fd{::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (!fd_) throw IoError("open", partial_, 0, 0, errno);
  if (bytes == 0 || ::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) == 0) return;
  if (const int code = errno; code != EOPNOTSUPP && code != ENOSYS) {
    ::unlink(partial_.c_str());
    throw IoError("reserve", partial_, 0, bytes, code);
  }
}

WholeFile::~WholeFile() {
  if (!published_) ::unlink(partial_.c_str());
}

void WholeFile::append(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t put = ::pwrite(fd_.get(), data.data(), data.size(), static_cast<off_t>(next_));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw IoError("write", partial_, next_, data.size(), put < 0 ? errno : ENOSPC);
    data = data.subspan(static_cast<std::size_t>(put));
    next_ += static_cast<Bytes>(put);
  }
}

void WholeFile::publish() {
  HEADRACE_CHECK(!published_, "{} is published twice", path_);
  if (::fsync(fd_.get()) != 0) throw IoError("fsync", partial_, 0, 0, errno);
  if (::close(fd_.release()) != 0) throw IoError("close", partial_, 0, 0, errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) throw IoError("rename", partial_, 0, 0, errno);
  published_ = true;
  flush_folder(folder_);
}

void write_whole_file(const std::string& folder, std::string_view name, std::string_view contents) {
  WholeFile file(folder, name, contents.size());
  file.append(std::as_bytes(std::span(contents)));
  file.publish();
}

void flush_folder(const std::string& folder) {
  const Fd fd{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!fd) throw IoError("open", folder, 0, 0, errno);
  if (::fsync(fd.get()) != 0) throw IoError("fsync", folder, 0, 0, errno);
}

Bytes free_disk_bytes(const std::string& folder) {
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0) throw IoError("statvfs", folder, 0, 0, errno);
  return static_cast<Bytes>(space.f_bavail) * space.f_frsize;
}

}  // namespace headrace
