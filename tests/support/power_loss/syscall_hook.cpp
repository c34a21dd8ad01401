#include "tests/support/power_loss/syscall_hook.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "tests/support/real_calls.h"

namespace headrace::testing {
namespace {

std::mutex hook_mutex;
std::string hooked_folder;
SyscallHook::Before hooked;

std::string path_at(int folder, const char* path) {
  return folder == AT_FDCWD || *path == '/' ? path : path_of(folder) + "/" + path;
}

// errno for the call to fail with, 0 to go on.
int ask(FileEvent event) {
  const std::lock_guard lock(hook_mutex);
  return hooked && event.path.starts_with(hooked_folder) ? hooked(event) : 0;
}

bool watching() {
  const std::lock_guard lock(hook_mutex);
  return static_cast<bool>(hooked);
}

template <class Call>
auto pass_or_fail(FileEvent event, const Call& call) -> decltype(call()) {
  const int code = watching() ? ask(std::move(event)) : 0;
  if (code == 0) return call();
  errno = code;
  return -1;
}

// What an open does to files: it makes one, empties one, or neither.
int ask_for_open(const char* path, int flags) {
  if ((flags & (O_CREAT | O_TRUNC)) == 0 || !watching()) return 0;
  struct stat status {};
  const bool exists = ::stat(path, &status) == 0;
  if (!exists) return (flags & O_CREAT) != 0 ? ask({FileCall::create, path, 0, {}, {}}) : 0;
  return (flags & O_TRUNC) != 0 ? ask({FileCall::truncate, path, 0, {}, {}}) : 0;
}

std::vector<std::byte> copy_of(const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(data);
  return {first, first + bytes};
}

}  // namespace

SyscallHook::SyscallHook(std::string folder, Before before) {
  const std::lock_guard lock(hook_mutex);
  hooked_folder = std::move(folder);
  hooked = std::move(before);
}

SyscallHook::~SyscallHook() {
  const std::lock_guard lock(hook_mutex);
  hooked = nullptr;
}

SyscallHook::Before failing(FileCall call, std::string suffix, int code, int skip, int times) {
  return [=, seen = 0](const FileEvent& event) mutable {
    if (event.call != call || !event.path.ends_with(suffix)) return 0;
    const int index = seen++;
    return index >= skip && index < skip + times ? code : 0;
  };
}

}  // namespace headrace::testing

using headrace::testing::FileCall;
using headrace::testing::FileEvent;

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto real = headrace::testing::real_call<int (*)(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const int code = headrace::testing::ask_for_open(path, flags);
  if (code == 0) return real(path, flags, mode);
  errno = code;
  return -1;
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  static const auto real =
      headrace::testing::real_call<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  FileEvent event{FileCall::write, {}, static_cast<std::uint64_t>(offset), {}, {}};
  if (headrace::testing::watching()) {
    event.path = headrace::testing::path_of(fd);
    event.data = headrace::testing::copy_of(data, bytes);
  }
  return headrace::testing::pass_or_fail(std::move(event), [&] { return real(fd, data, bytes, offset); });
}

int fdatasync(int fd) {
  static const auto real = headrace::testing::real_call<int (*)(int)>("fdatasync");
  return headrace::testing::pass_or_fail({FileCall::sync, headrace::testing::path_of(fd), 0, {}, {}},
                                         [&] { return real(fd); });
}

int fsync(int fd) {
  static const auto real = headrace::testing::real_call<int (*)(int)>("fsync");
  return headrace::testing::pass_or_fail({FileCall::sync, headrace::testing::path_of(fd), 0, {}, {}},
                                         [&] { return real(fd); });
}

int ftruncate(int fd, off_t bytes) noexcept {
  static const auto real = headrace::testing::real_call<int (*)(int, off_t)>("ftruncate");
  return headrace::testing::pass_or_fail(
      {FileCall::truncate, headrace::testing::path_of(fd), static_cast<std::uint64_t>(bytes), {}, {}},
      [&] { return real(fd, bytes); });
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  static const auto real = headrace::testing::real_call<int (*)(int, int, off_t, off_t)>("fallocate");
  const off_t new_bytes = (mode & FALLOC_FL_KEEP_SIZE) != 0 ? 0 : offset + bytes;
  return headrace::testing::pass_or_fail(
      {FileCall::reserve, headrace::testing::path_of(fd), static_cast<std::uint64_t>(new_bytes), {}, {}},
      [&] { return real(fd, mode, offset, bytes); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static const auto real =
      headrace::testing::real_call<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  const FileCall call = (flags & RENAME_EXCHANGE) != 0 ? FileCall::exchange : FileCall::rename;
  return headrace::testing::pass_or_fail(
      {call, headrace::testing::path_at(from_folder, from), 0, {}, headrace::testing::path_at(to_folder, to)},
      [&] { return real(from_folder, from, to_folder, to, flags); });
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = headrace::testing::real_call<int (*)(const char*, const char*)>("rename");
  return headrace::testing::pass_or_fail({FileCall::rename, from, 0, {}, to}, [&] { return real(from, to); });
}

int unlink(const char* path) noexcept {
  static const auto real = headrace::testing::real_call<int (*)(const char*)>("unlink");
  return headrace::testing::pass_or_fail({FileCall::remove, path, 0, {}, {}}, [&] { return real(path); });
}

int remove(const char* path) noexcept {
  static const auto real = headrace::testing::real_call<int (*)(const char*)>("remove");
  struct stat status {};
  const bool is_folder = ::lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
  return headrace::testing::pass_or_fail(
      {is_folder ? FileCall::remove_folder : FileCall::remove, path, 0, {}, {}}, [&] { return real(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static const auto real = headrace::testing::real_call<int (*)(int, const char*, int)>("unlinkat");
  const FileCall call = (flags & AT_REMOVEDIR) != 0 ? FileCall::remove_folder : FileCall::remove;
  return headrace::testing::pass_or_fail({call, headrace::testing::path_at(folder, path), 0, {}, {}},
                                         [&] { return real(folder, path, flags); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = headrace::testing::real_call<int (*)(const char*, mode_t)>("mkdir");
  if (::access(path, F_OK) == 0) return real(path, mode);
  return headrace::testing::pass_or_fail({FileCall::make_folder, path, 0, {}, {}},
                                         [&] { return real(path, mode); });
}

int rmdir(const char* path) noexcept {
  static const auto real = headrace::testing::real_call<int (*)(const char*)>("rmdir");
  return headrace::testing::pass_or_fail({FileCall::remove_folder, path, 0, {}, {}},
                                         [&] { return real(path); });
}

}  // extern "C"
