#include "aio/direct_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include "aio/aligned_memory.h"

namespace headrace::aio {

std::optional<DirectAlignment> stated_alignment([[maybe_unused]] int fd) {
#ifdef STATX_DIOALIGN  // headers of Linux 6.1 or later
  struct statx status {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0)
    return DirectAlignment{.memory = status.stx_dio_mem_align, .offset = status.stx_dio_offset_align};
#endif
  return std::nullopt;
}

bool accepts_direct_reads(int fd, DirectAlignment alignment) {
  const std::size_t block = std::max(alignment.memory, alignment.offset);
  const AlignedMemory memory = allocate_aligned(block, block);
  return ::pread(fd, memory.get(), block, 0) >= 0 || errno != EINVAL;
}

std::string file_system_name(int fd) {
  struct Known {
    std::uint64_t magic;
    const char* name;
  };
  constexpr std::array<Known, 12> known = {{{0xef53, "ext4"},
                                            {0x58465342, "xfs"},
                                            {0x9123683e, "btrfs"},
                                            {0x01021994, "tmpfs"},
                                            {0x858458f6, "ramfs"},
                                            {0x794c7630, "overlayfs"},
                                            {0x6969, "nfs"},
                                            {0xff534d42, "cifs"},
                                            {0x65735546, "fuse"},
                                            {0x01021997, "9p"},
                                            {0x2fc12fc1, "zfs"},
                                            {0xf2f52010, "f2fs"}}};
  struct statfs status {};
  if (::fstatfs(fd, &status) != 0) return "an unknown file system";
  const auto magic = static_cast<std::uint32_t>(status.f_type);
  for (const Known& entry : known)
    if (entry.magic == magic) return entry.name;
  return fmt::format("file system {:#x}", magic);
}

}  // namespace headrace::aio
