#include "aio/uring_refusal.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "headrace/bytes.h"

namespace headrace::aio {
namespace {

std::string read_disabled_setting() {
  std::ifstream file("/proc/sys/kernel/io_uring_disabled");
  std::string setting;
  std::getline(file, setting);
  return setting;
}

unsigned long long memlock_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur;
}

std::string cause_and_remedy(int code, const std::string& disabled_setting,
                             unsigned long long memlock_bytes) {
  switch (code) {
    case EPERM:
    case EACCES:
      if (!disabled_setting.empty() && disabled_setting != "0")
        return fmt::format(
            "the setting kernel.io_uring_disabled is {}. An administrator can allow it: sysctl "
            "kernel.io_uring_disabled=0",
            disabled_setting);
      return "a seccomp filter, most likely of the container runtime, forbids it. Allow io_uring_setup, "
             "io_uring_enter and "
             "io_uring_register in the runtime's profile (Docker: --security-opt seccomp=PROFILE.json)";
    case ENOSYS:
      return "this kernel has no io_uring that reads and writes (Linux 5.6 or later, CONFIG_IO_URING), or a "
             "seccomp filter "
             "hides it. Update the kernel, or allow io_uring in the sandbox";
    case ENOMEM:
      return fmt::format(
          "memory for the ring was refused, and the limit of locked memory is {}. Raise it (ulimit -l, or "
          "LimitMEMLOCK= of "
          "the service) or choose a smaller queue depth",
          format_bytes(memlock_bytes));
    default:
      return "run `headrace doctor` to see what this machine offers";
  }
}

}  // namespace

std::string explain_refusal(int code, const std::string& disabled_setting, unsigned long long memlock_bytes) {
  return fmt::format("io_uring is not available ({}, errno {}): {}.", std::strerror(code), code,
                     cause_and_remedy(code, disabled_setting, memlock_bytes));
}

UringRefused::UringRefused(int code)
    : Error(explain_refusal(code, read_disabled_setting(), memlock_limit())), code_(code) {}

}  // namespace headrace::aio
