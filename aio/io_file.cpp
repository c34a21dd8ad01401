#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "aio/aligned_memory.h"
#include "aio/direct_io.h"
#include "aio/engine_thread.h"
#include "aio/file_links.h"
#include "headrace/errors.h"
#include "headrace/io_engine.h"
#include "headrace/log.h"

namespace headrace {
namespace {

using aio::DirectAlignment;

constexpr DirectAlignment assumed_alignment{.memory = 4096, .offset = 4096};  // where the file does not say

int flags_of(IoFile::Mode mode) {
  switch (mode) {
    case IoFile::Mode::read_only:
      return O_RDONLY | O_CLOEXEC;
    case IoFile::Mode::read_write:
      return O_RDWR | O_CLOEXEC;
    case IoFile::Mode::create:
      return O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
  }
  return O_RDONLY | O_CLOEXEC;
}

Fd open_fd(const std::string& path, int flags) {
  constexpr mode_t permissions = 0644;
  return Fd(::open(path.c_str(), flags, permissions));
}

// Opened for direct I/O with a known alignment, or empty when this file can only be buffered.
Fd open_direct(const std::string& path, int flags, DirectAlignment& alignment) {
  Fd fd = open_fd(path, flags | O_DIRECT);
  if (!fd) return fd;
  if (const auto stated = aio::stated_alignment(fd.get())) {
    alignment = *stated;
    if (alignment.memory == 0 || alignment.offset == 0) fd.reset(), errno = EINVAL;
  } else {
    alignment = assumed_alignment;
    if (!aio::accepts_direct_reads(fd.get(), alignment)) fd.reset(), errno = EINVAL;
  }
  return fd;
}

IoFile::Id identify_storage(const Fd& fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw IoError("fstat", path, 0, 0, errno);
  if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
    throw Error(
        fmt::format("{} is neither a regular file nor a block device: give the path of a file.", path));
  if (S_ISBLK(status.st_mode)) return {.device = status.st_rdev, .inode = 0};
  return {.device = status.st_dev, .inode = status.st_ino};
}

// open(2) of a pipe waits for its other end.
void refuse_pipe(const std::string& path) {
  if (struct stat status{}; ::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode))
    throw Error(fmt::format("{} is a pipe: give the path of a file.", path));
}

// An errno value, or 0.
int write_zeros(const IoFile& file, Bytes from, Bytes to) {
  constexpr Bytes chunk_bytes = 1 << 20;
  const aio::AlignedMemory zeros = aio::allocate_aligned(chunk_bytes, 4096);
  std::memset(zeros.get(), 0, chunk_bytes);
  Bytes at = from / file.offset_alignment() * file.offset_alignment();
  if (at < from) return EOPNOTSUPP;  // the last block holds data
  while (at < to) {
    const Bytes bytes = std::min(chunk_bytes, round_up(to - at, file.offset_alignment()));
    const ssize_t written = ::pwrite(file.fd(), zeros.get(), bytes, static_cast<off_t>(at));
    if (written == 0) return EIO;
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) at += static_cast<Bytes>(written);
  }
  return 0;
}

// Where the file system tells of them. Blocks that hold data too are left alone.
int fill_holes(const IoFile& file, Bytes before) {
  const auto end = static_cast<off_t>(before);
  int code = 0;
  for (off_t data = 0; code == 0 && data < end;) {
    const off_t hole = ::lseek(file.fd(), data, SEEK_HOLE);
    if (hole < 0 || hole >= end) break;
    data = ::lseek(file.fd(), hole, SEEK_DATA);
    if (data < 0 || data > end) data = end;
    const Bytes block = file.offset_alignment();
    code = write_zeros(file, round_up(static_cast<Bytes>(hole), block),
                       static_cast<Bytes>(data) / block * block);
  }
  return code;
}

// For file systems without fallocate: zeros take the space for certain, at the price of writing it once.
int fill_with_zeros(const IoFile& file, Bytes before, Bytes bytes) {
  int code = fill_holes(file, std::min(before, bytes));
  if (code != 0 || bytes <= before) return code;
  code = write_zeros(file, before, bytes);
  return code == 0 && ::ftruncate(file.fd(), static_cast<off_t>(bytes)) != 0 ? errno : code;
}

}  // namespace

IoFile IoFile::open(const std::string& path, Mode mode, bool direct) {
  refuse_pipe(path);
  const int flags = flags_of(mode);
  IoFile file;
  file.path_ = path;
  if (direct) {
    DirectAlignment alignment;
    file.fd_ = open_direct(path, flags, alignment);
    if (file.fd_) {
      file.direct_ = true;
      file.memory_alignment_ = alignment.memory;
      file.offset_alignment_ = alignment.offset;
    } else if (errno != EINVAL) {
      throw IoError("open", path, 0, 0, errno);
    }
  }
  if (!file.fd_) {
    file.fd_ = open_fd(path, flags);
    if (!file.fd_) throw IoError("open", path, 0, 0, errno);
  }
  file.id_ = identify_storage(file.fd_, path);
  file.links_ = std::make_shared<Links>();
  if (direct && !file.direct_) {
    warn_once(fmt::format("buffered {}", file.id_.device),  // once for all files there
              fmt::format("{} is on {}, which refuses direct I/O: files there go through the page cache, "
                          "which takes memory "
                          "and time. Choose a path on a local ext4 or xfs disk for full speed.",
                          path, aio::file_system_name(file.fd())));
  }
  return file;
}

Bytes IoFile::size_bytes() const {
  const off_t end = ::lseek(fd(), 0, SEEK_END);
  if (end < 0) throw IoError("lseek", path_, 0, 0, errno);
  return static_cast<Bytes>(end);
}

void IoFile::preallocate(Bytes bytes, bool may_write) {
  const Bytes before = size_bytes();
  if (bytes == 0) return;
  int code = 0;
  {
    const aio::SignalsBlocked blocked;  // some file systems give up, and start from nothing, at every signal
    code = ::fallocate(fd(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  if (code == EOPNOTSUPP) code = may_write ? fill_with_zeros(*this, before, bytes) : 0;
  if (code == 0) return;
  (void)!::ftruncate(
      fd(), static_cast<off_t>(before));  // gives back what was taken; the first error is the one to tell
  throw IoError("reservation", path_, 0, bytes, code);
}

void IoFile::sync_data() {
  if (::fdatasync(fd()) != 0) throw IoError("fdatasync", path_, 0, size_bytes(), errno);
}

}  // namespace headrace
