// What a file says about direct I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headrace::aio {

struct DirectAlignment {
  std::uint32_t memory = 0, offset = 0;  // 0: direct I/O is not possible
};

// From STATX_DIOALIGN; empty when the kernel or the file system does not say.
std::optional<DirectAlignment> stated_alignment(int fd);
// Reads one block: false when the file refuses direct I/O with EINVAL, although it was opened for it.
bool accepts_direct_reads(int fd, DirectAlignment alignment);
// "ext4", "tmpfs", or the magic number in hexadecimal.
std::string file_system_name(int fd);

}  // namespace headrace::aio
