// Preloaded into a program under test (LD_PRELOAD): makes one of its system calls on files fail, and lets
// signals interrupt it. What it does is in the environment:
//   HEADRACE_TEST_FAULT=CALL:SUFFIX:SKIP:ERRNO[:TIMES]  calls of CALL (open, pread, pwrite, fsync, fdatasync,
//       ftruncate, fallocate, rename, renameat2, mkdir) on a path that ends with SUFFIX fail, after SKIP of
//       them; TIMES is 1
//   HEADRACE_TEST_FAULT_RANK=R      only in this rank of an mpirun job
//   HEADRACE_TEST_CALLS=FILE        each such call appends "CALL PATH", or "FAULT CALL PATH" where it failed
//   HEADRACE_TEST_KILL=TEXT:N       SIGKILL in the place of the N-th call (from 0) on a path with TEXT in it
//   HEADRACE_TEST_DELAY=TEXT:N      each such call on a path with TEXT in it takes N milliseconds longer
//   HEADRACE_TEST_ALARM=N           SIGALRM every N microseconds, with a handler that restarts nothing
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

#include "tests/support/real_calls.h"

namespace {

using headrace::testing::path_of;
using headrace::testing::real_call;

struct Fault {
  std::string call, suffix;
  long skip = 0, times = 0;
  int code = 0;
};

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Fault read_fault() {
  Fault fault;
  const char* rank = variable("HEADRACE_TEST_FAULT_RANK");
  if (*rank != '\0' && std::strcmp(rank, variable("OMPI_COMM_WORLD_RANK")) != 0) return fault;
  std::istringstream text(variable("HEADRACE_TEST_FAULT"));
  std::string skip, code, times;
  std::getline(text, fault.call, ':');
  std::getline(text, fault.suffix, ':');
  std::getline(text, skip, ':');
  std::getline(text, code, ':');
  std::getline(text, times, ':');
  fault.skip = std::atol(skip.c_str());
  fault.code = std::atoi(code.c_str());
  fault.times = times.empty() ? 1 : std::atol(times.c_str());
  return fault;
}

const Fault& fault() {
  static const Fault* const once = new Fault(read_fault());  // for calls at exit too
  return *once;
}

void note(const std::string& line) {
  static const auto real_open = real_call<int (*)(const char*, int, ...)>("open");
  static const int log =
      *variable("HEADRACE_TEST_CALLS") == '\0'
          ? -1
          : real_open(variable("HEADRACE_TEST_CALLS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (log >= 0) (void)!::write(log, line.data(), line.size());
}

void kill_at(const std::string& path) {
  static const std::string* const wanted = new std::string(variable("HEADRACE_TEST_KILL"));
  static std::atomic<long> seen{0};
  const std::size_t colon = wanted->rfind(':');
  if (colon == std::string::npos || path.find(wanted->substr(0, colon)) == std::string::npos) return;
  if (seen++ == std::atol(wanted->c_str() + colon + 1)) ::raise(SIGKILL);
}

void delay(const std::string& path) {
  static const std::string* const wanted = new std::string(variable("HEADRACE_TEST_DELAY"));
  const std::size_t colon = wanted->rfind(':');
  if (colon == std::string::npos || path.find(wanted->substr(0, colon)) == std::string::npos) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(std::atol(wanted->c_str() + colon + 1)));
}

// Whether this call is the one that fails; errno is then set.
bool fails(const char* call, const std::string& path) {
  kill_at(path);
  delay(path);
  static std::atomic<long> seen{0};
  bool hit = call == fault().call && path.ends_with(fault().suffix);
  if (hit) {
    const long number = seen++;
    hit = number >= fault().skip && number < fault().skip + fault().times;
  }
  note((hit ? "FAULT " : "") + std::string(call) + " " + path + "\n");
  if (hit) errno = fault().code;
  return hit;
}

void on_alarm(int) {}

__attribute__((constructor)) void start_alarm() {
  const long microseconds = std::atol(variable("HEADRACE_TEST_ALARM"));
  if (microseconds <= 0) return;
  struct sigaction action {};
  action.sa_handler = on_alarm;  // without SA_RESTART: calls end with EINTR
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, microseconds}, {0, microseconds}};
  ::setitimer(ITIMER_REAL, &every, nullptr);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto real = real_call<int (*)(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return fails("open", path) ? -1 : real(path, flags, mode);
}

ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  static const auto real = real_call<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return fails("pread", path_of(fd)) ? -1 : real(fd, data, bytes, offset);
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  static const auto real = real_call<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return fails("pwrite", path_of(fd)) ? -1 : real(fd, data, bytes, offset);
}

int fsync(int fd) {
  static const auto real = real_call<int (*)(int)>("fsync");
  return fails("fsync", path_of(fd)) ? -1 : real(fd);
}

int fdatasync(int fd) {
  static const auto real = real_call<int (*)(int)>("fdatasync");
  return fails("fdatasync", path_of(fd)) ? -1 : real(fd);
}

int ftruncate(int fd, off_t bytes) noexcept {
  static const auto real = real_call<int (*)(int, off_t)>("ftruncate");
  return fails("ftruncate", path_of(fd)) ? -1 : real(fd, bytes);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  static const auto real = real_call<int (*)(int, int, off_t, off_t)>("fallocate");
  return fails("fallocate", path_of(fd)) ? -1 : real(fd, mode, offset, bytes);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = real_call<int (*)(const char*, const char*)>("rename");
  return fails("rename", from) ? -1 : real(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  static const auto real = real_call<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  return fails("renameat2", from) ? -1 : real(from_folder, from, to_folder, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = real_call<int (*)(const char*, mode_t)>("mkdir");
  return fails("mkdir", path) ? -1 : real(path, mode);
}

}  // extern "C"
