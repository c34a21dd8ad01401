#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "aio/aligned_memory.h"
#include "aio/direct_io.h"
#include "headrace/io_probe.h"
#include "headrace/owned.h"

namespace headrace {
namespace {

constexpr std::size_t page_bytes = 4096;  // the largest alignment in use
constexpr std::size_t file_bytes = 4 * page_bytes;

// Without a name where the file system can, else without one from here on.
Fd make_file(const std::string& folder) {
  constexpr mode_t permissions = 0600;
  Fd nameless(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, permissions));
  if (nameless || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
    return nameless;
  std::string name = folder + "/.headrace-probe-XXXXXX";
  Fd named(::mkostemp(name.data(), O_CLOEXEC));
  if (named) ::unlink(name.c_str());
  return named;
}

bool set_direct(const Fd& fd) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  return flags >= 0 && ::fcntl(fd.get(), F_SETFL, flags | O_DIRECT) == 0;
}

bool reads(const Fd& fd, std::byte* memory, std::size_t bytes, std::size_t offset) {
  return ::pread(fd.get(), memory, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

// The smallest that the file takes, of those that file systems ask for.
void try_alignments(const Fd& fd, std::byte* memory, DirectIoProbe& probe) {
  for (std::uint32_t offset = 512; offset <= page_bytes && probe.offset_alignment == 0; offset *= 2)
    if (reads(fd, memory, offset, offset)) probe.offset_alignment = offset;
  for (std::uint32_t address = 4; address <= page_bytes && probe.memory_alignment == 0; address *= 2)
    if (reads(fd, memory + address, page_bytes, 0)) probe.memory_alignment = address;
}

bool write_and_compare(const Fd& fd, std::byte* memory, DirectIoProbe& probe) {
  std::byte* const back = memory + file_bytes;
  for (std::size_t i = 0; i < file_bytes; ++i) memory[i] = static_cast<std::byte>(i * 7 + i / page_bytes);
  const ssize_t written = ::pwrite(fd.get(), memory, file_bytes, 0);
  if (written != static_cast<ssize_t>(file_bytes)) {
    probe.write_code = written < 0 ? errno : ENOSPC;
    return false;
  }
  return reads(fd, back, file_bytes, 0) && std::memcmp(memory, back, file_bytes) == 0;
}

}  // namespace

DirectIoProbe probe_direct_io(const std::string& folder) {
  DirectIoProbe probe;
  const Fd fd = make_file(folder);
  if (!fd) {
    probe.create_code = errno;
    return probe;
  }
  const aio::AlignedMemory memory = aio::allocate_aligned(2 * file_bytes, page_bytes);
  if (!write_and_compare(fd, memory.get(), probe)) return probe;  // buffered, as every file takes it
  if (!set_direct(fd)) return probe;
  DirectIoProbe tried = probe;
  probe.direct = write_and_compare(fd, memory.get(), tried);
  if (!probe.direct) return probe;
  if (const auto stated = aio::stated_alignment(fd.get()); stated && stated->offset != 0) {
    probe.stated = true;
    probe.memory_alignment = stated->memory;
    probe.offset_alignment = stated->offset;
  } else {
    try_alignments(fd, memory.get(), probe);
  }
  return probe;
}

}  // namespace headrace
