// Tests that change their whole process (system calls refused, limits, mounts, another user) run in a child
// of their own.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "headrace/owned.h"

namespace headrace::testing {

// Runs `body` (with EXPECTs) in a forked process; its standard error must match the regular expression.
template <class Body>
void expect_in_child(Body body, const std::string& standard_error) {
  GTEST_FLAG_SET(death_test_style, "fast");  // a fork: the parent removes the folder that both use
  const auto run = [&] {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "unexpected exception: %s\n", error.what());
      ::_exit(2);
    }
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), standard_error);
}

// What is written to standard error from now until text(), which passes it on to the parent. (GoogleTest's
// own capture is taken by the death test.)
class CapturedStandardError {
 public:
  CapturedStandardError() : before_(::dup(STDERR_FILENO)), file_(::memfd_create("stderr", MFD_CLOEXEC)) {
    ::dup2(file_.get(), STDERR_FILENO);
  }
  std::string text() {
    std::fflush(stderr);
    ::dup2(before_.get(), STDERR_FILENO);
    std::string text(static_cast<std::size_t>(::lseek(file_.get(), 0, SEEK_END)), ' ');
    EXPECT_EQ(::pread(file_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    std::fputs(text.c_str(), stderr);
    return text;
  }

 private:
  Fd before_, file_;
};

// From now on no thread can be started, of this process or of the kernel for it. Root is exempt from the
// limit, so the process becomes nobody where it can.
inline void allow_no_more_threads() {
  constexpr uid_t nobody = 65534;
  if (::geteuid() == 0) {
    ASSERT_EQ(::setresgid(nobody, nobody, nobody), 0);
    ASSERT_EQ(::setresuid(nobody, nobody, nobody), 0);
  }
  const rlimit limit{1, 1};
  ASSERT_EQ(::setrlimit(RLIMIT_NPROC, &limit), 0);
}

// From now on the system call answers `code` (in the whole process); with `flags`, only when argument number
// 2 has them.
inline void refuse_system_call(std::uint32_t number, std::uint32_t code, std::uint32_t flags = 0) {
  constexpr auto number_at = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  constexpr auto flags_at =
      static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t));
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number_at),       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags_at),        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  if (flags == 0) program[2] = program[3] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code);
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

}  // namespace headrace::testing
