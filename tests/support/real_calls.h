// For what stands in the place of system calls: the real ones, and the paths that they are of.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <string>

namespace headrace::testing {

// The call behind this library's own of that name.
template <class Function>
Function real_call(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

inline std::string path_of(int fd) {
  std::array<char, 4096> buffer;
  const ssize_t got =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), buffer.data(), buffer.size());
  return {buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

}  // namespace headrace::testing
