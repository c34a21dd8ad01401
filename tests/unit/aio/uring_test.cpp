// What is found out about rings and files by trying.
#include "aio/uring.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "aio/uring_refusal.h"
#include "headrace/io_probe.h"
#include "tests/support/repeated_alarms.h"
#include "tests/unit/aio/in_child.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using aio::Uring;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds long_enough{1};

class Rings : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      Uring({}).try_out();
    } catch (const aio::UringRefused& refusal) {
      GTEST_SKIP() << refusal.what();
    }
  }

  // A file with contents on the disk of the temporary folder, and one in memory, which cannot be polled.
  std::vector<IoFile> some_files() const {
    std::vector<IoFile> files;
    files.push_back(IoFile::open(folder_.file("data"), IoFile::Mode::create));
    std::string name = "/dev/shm/headrace-aio-XXXXXX";
    if (const Fd made(::mkstemp(name.data())); made) {
      files.push_back(IoFile::open(name, IoFile::Mode::read_write));
      ::unlink(name.c_str());
    }
    const AlignedMemory contents(4096);
    for (const IoFile& file : files)
      expect_whole(transfer(*make_thread_engine({}), IoDirection::write, file, 0, contents), 4096);
    return files;
  }
  const IoFolder folder_;
};

TEST_F(Rings, find_out_whether_a_file_can_be_polled_whatever_signals_come) {
  constexpr int times = 300;
  for (const IoFile& file : some_files()) {
    const bool can_poll = Uring::can_poll(file.fd(), file.offset_alignment());
    const RepeatedAlarms alarms(std::chrono::microseconds(100));
    int same = 0;
    for (int i = 0; i < times; ++i)
      same += Uring::can_poll(file.fd(), file.offset_alignment()) == can_poll ? 1 : 0;
    EXPECT_EQ(same, times) << file.path() << (can_poll ? " can be polled" : " cannot be polled");
    EXPECT_GT(alarms.count(), 0);
  }
}

TEST_F(Rings, that_may_not_be_entered_poll_no_file) {
  const auto files = some_files();
  expect_in_child(
      [&] {
        refuse_system_call(SYS_io_uring_enter, EPERM);
        for (const IoFile& file : files) EXPECT_FALSE(Uring::can_poll(file.fd(), file.offset_alignment()));
        EXPECT_THROW(Uring({}).try_worker(long_enough), aio::UringRefused);
      },
      "");
}

TEST_F(Rings, that_may_not_be_entered_are_refused_to_the_probe_as_to_the_engine) {
  expect_in_child(
      [] {
        EXPECT_EQ(probe_uring().code, 0);
        refuse_system_call(SYS_io_uring_enter, EPERM);
        const UringProbe probe = probe_uring();
        EXPECT_EQ(probe.code, EPERM);
        try {
          (void)make_uring_engine({});
          ADD_FAILURE() << "no refusal";
        } catch (const Error& refusal) {
          EXPECT_EQ(probe.refusal, refusal.what());
        }
      },
      "");
}

TEST_F(Rings, find_workers_of_the_kernel_where_threads_can_be_started) {
  EXPECT_EQ(Uring({}).try_worker(long_enough), 0);
  const RepeatedAlarms alarms(std::chrono::microseconds(100));
  EXPECT_EQ(Uring({}).try_worker(long_enough), 0);
}

TEST_F(Rings, find_none_where_threads_are_at_their_limit) {
  expect_in_child(
      [] {
        allow_no_more_threads();
        const auto start = Clock::now();
        EXPECT_EQ(Uring({}).try_worker(long_enough), ECANCELED);
        EXPECT_LT(Clock::now() - start, long_enough);
        EXPECT_EQ(probe_uring().workers.code, ECANCELED);
      },
      "");
}

TEST_F(Rings, give_the_search_for_workers_up_when_its_time_is_over) {
  EXPECT_EQ(Uring({}).try_worker(std::chrono::milliseconds(0)), ETIMEDOUT);
}

}  // namespace
}  // namespace headrace::testing
