// Watches and fails the system calls that change files: the test program defines open, pwrite, fdatasync,
// fsync, ftruncate, fallocate, rename, renameat2, unlink, unlinkat, remove, mkdir and rmdir itself
// (syscall_hook.cpp) and passes them on to the C library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headrace/bytes.h"

namespace headrace::testing {

enum class FileCall : std::uint8_t {
  write,
  sync,
  truncate,  // also an open that empties a file
  reserve,
  rename,
  exchange,  // two names change places
  remove,
  create,  // an open that makes a file
  make_folder,
  remove_folder,
};

struct FileEvent {
  FileCall call = FileCall::write;
  std::string path;
  std::uint64_t offset = 0;  // write; new size of truncate, reserve (0 when the size is kept)
  std::vector<std::byte> data;
  std::string target;  // rename, exchange
};

// While it lives, every such call below `folder` is shown to `before`, which returns 0 to let it through or
// the errno value with which it is to fail. One at a time; calls may come from any thread.
class SyscallHook {
 public:
  using Before = std::function<int(const FileEvent&)>;
  SyscallHook(std::string folder, Before before);
  SyscallHook(const SyscallHook&) = delete;
  SyscallHook& operator=(const SyscallHook&) = delete;
  ~SyscallHook();
};

// Fails the calls of this kind on paths that end with `suffix`, after letting `skip` of them through.
SyscallHook::Before failing(FileCall call, std::string suffix, int code, int skip = 0, int times = 1);

}  // namespace headrace::testing
