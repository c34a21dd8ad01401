#include "src/train/backends.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "headrace/errors.h"
#include "headrace/io_probe.h"
#include "tests/support/bounded_wait.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/aio/in_child.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// Set by the kernel where a ring has one.
std::size_t threads_that_submit() {
  std::size_t count = 0;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.starts_with("iou-sqp")) ++count;
  }
  return count;
}

class Backend : public ::testing::Test {
 protected:
  Backend() {
    options_.swap_paths = {folder_.path()};
    options_.engine.swap_directories = {folder_.path("rank-00000")};
    options_.engine.optimizer_tier = Tier::nvme;
    options_.io = IoKind::io_uring;
  }

  // Whether so many threads of the kernel submit for a run's engine that has written a block. Others, of
  // rings that are closed, end some time later.
  bool submits_with_threads(const ResolvedOptions& options, std::size_t count) const {
    const Backends backends = make_backends(options, 1 << 20);
    const IoFile file = IoFile::open(folder_.path("data"), IoFile::Mode::create);
    alignas(4096) static std::array<std::byte, 4096> block;
    EXPECT_TRUE(backends.io->submit(IoDirection::write, file, 0, HostLease::borrowed(block), block.size())
                    .wait()
                    .ok());
    return test::eventually([&] { return threads_that_submit() == count; });
  }

  const testing::TemporaryFolder folder_;
  ResolvedOptions options_;
};

TEST_F(Backend, of_a_run_that_polls_submissions_has_a_thread_of_the_kernel_for_them) {
  for (const IoTrial& flag : probe_uring().flags)
    if (flag.name == "SQPOLL" && flag.code != 0) GTEST_SKIP() << "SQPOLL is refused here";
  EXPECT_TRUE(submits_with_threads(options_, 0));
  options_.poll_submissions = true;
  EXPECT_TRUE(submits_with_threads(options_, 1));
}

// A configuration that was written where io_uring works, by `headrace tune`, asks for it elsewhere too.
TEST_F(Backend, that_has_to_use_io_uring_says_who_asks_for_it_where_it_is_refused) {
  testing::expect_in_child(
      [this] {
        testing::refuse_system_call(SYS_io_uring_setup, EPERM);
        try {
          (void)make_backends(options_, 1 << 20);
          ADD_FAILURE() << "no error";
        } catch (const Error& error) {
          std::fputs(error.what(), stderr);
        }
      },
      "--io io_uring, --require-io-uring or headrace.io");
}

}  // namespace
}  // namespace headrace
