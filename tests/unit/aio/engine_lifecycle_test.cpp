// Engines and the process around them: forks, memory, refusals.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "aio/uring_refusal.h"
#include "tests/unit/aio/in_child.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;
using ::testing::HasSubstr;

Bytes resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  Bytes total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
}

// AddressSanitizer keeps up to 256 MiB of freed memory, and finds leaks itself; ThreadSanitizer keeps what it
// knows of memory and locks.
#if defined(__SANITIZE_ADDRESS__)
constexpr Bytes slack = 512_MiB;
#elif defined(__SANITIZE_THREAD__)
constexpr Bytes slack = 16_MiB;
#else
constexpr Bytes slack = 0;
#endif

// Runs `body` in a forked child that does not return; gives its exit status.
template <class Body>
int status_of_fork(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class EngineLifecycle
    : public ::testing::TestWithParam<std::unique_ptr<IoEngine> (*)(const IoEngineOptions&)> {
 protected:
  std::unique_ptr<IoEngine> make(const IoEngineOptions& options = {}) const { return GetParam()(options); }
  IoFile create() const { return IoFile::open(folder_.file("data"), IoFile::Mode::create); }
  IoFolder folder_;
};

TEST_P(EngineLifecycle, a_child_that_ends_does_not_disturb_the_parent) {
  const auto engine = make({.queue_depth = 2, .request_bytes = 64_KiB});
  const IoFile file = create();
  AlignedMemory memory(4_MiB), read(4_MiB);
  memory.fill(1);
  IoTicket in_flight = engine->submit(IoDirection::write, file, 0, memory.lease(), 4_MiB);
  EXPECT_EQ(status_of_fork([] { return 0; }), 0);
  expect_whole(in_flight.wait(), 4_MiB);
  expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 4_MiB);
  EXPECT_TRUE(read == memory);
}

TEST_P(EngineLifecycle, a_child_may_destroy_its_copy_and_the_parents_goes_on) {
  auto engine = make();
  const IoFile file = create();
  AlignedMemory memory(1_MiB);
  IoTicket in_flight = engine->submit(IoDirection::write, file, 0, memory.lease(), 1_MiB);
  EXPECT_EQ(status_of_fork([&] {
              in_flight = IoTicket();
              engine.reset();
              return 0;
            }),
            0);
  expect_whole(in_flight.wait(), 1_MiB);
  expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 1_MiB);
}

TEST_P(EngineLifecycle, a_child_that_submits_is_told_that_engines_do_not_survive_a_fork) {
  const auto engine = make();
  const IoFile file = create();
  const AlignedMemory memory(4096);
  EXPECT_EQ(status_of_fork([&] {
              try {
                (void)engine->submit(IoDirection::write, file, 0, memory.lease(), 4096);
              } catch (const std::logic_error&) {
                return 7;
              }
              return 0;
            }),
            7);
}

// A12, A13
TEST_P(EngineLifecycle, two_thousand_engines_leave_no_descriptor_and_no_memory_behind) {
  const IoFile file = create();
  const AlignedMemory memory(4096);
  const auto cycle = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const auto engine = make({.queue_depth = 2});
      if (i % 50 == 0) expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 4096);
    }
  };
  cycle(500);
  const Bytes resident = resident_bytes();
  const std::size_t descriptors = open_descriptors();
  cycle(1500);
  EXPECT_LT(resident_bytes(), resident + 8_MiB + slack);
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST_P(EngineLifecycle, memory_stays_flat_over_many_transfers) {
  const auto engine = make({.queue_depth = 4, .request_bytes = 4096});
  const IoFile file = create();
  AlignedMemory memory(16_KiB);
  expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 16_KiB);
  const auto cycle = [&](int times) {  // four requests, two of them of an edge
    for (int i = 0; i < times; ++i)
      ASSERT_TRUE(engine->submit(IoDirection::read, file, 100, memory.lease(), 12_KiB).wait().ok());
  };
  cycle(1000);
  const Bytes before = resident_bytes();
  cycle(20'000);  // 100 bytes kept of each would be 2 MB
  EXPECT_LT(resident_bytes(), before + 1_MiB + slack);
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineLifecycle, ::testing::Values(make_uring_engine, make_thread_engine),
                         [](const auto& tested) { return tested.index == 0 ? "uring" : "threads"; });

TEST(Refusal, names_the_cause_and_the_remedy) {
  using aio::explain_refusal;
  EXPECT_THAT(explain_refusal(EPERM, "2", 0), HasSubstr("sysctl kernel.io_uring_disabled=0"));
  EXPECT_THAT(explain_refusal(EPERM, "0", 0), HasSubstr("seccomp"));
  EXPECT_THAT(explain_refusal(EPERM, "", 0), HasSubstr("seccomp"));
  EXPECT_THAT(explain_refusal(ENOSYS, "0", 0), HasSubstr("Linux 5.6"));
  EXPECT_THAT(explain_refusal(ENOMEM, "0", 64_KiB), HasSubstr("64.0 KiB"));
  EXPECT_THAT(explain_refusal(EMFILE, "0", 0), HasSubstr("Too many open files"));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A3
class RefusedUring : public ::testing::TestWithParam<int> {};

TEST_P(RefusedUring, falls_back_to_threads_with_one_message) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        refuse_system_call(SYS_io_uring_setup, static_cast<std::uint32_t>(GetParam()));
        CapturedStandardError captured;
        const auto first = make_io_engine({}), second = make_io_engine({});
        const std::string message = captured.text();
        EXPECT_EQ(first->name(), "threads");
        EXPECT_EQ(second->name(), "threads");
        EXPECT_EQ(count_of(message, "io_uring is not available"), 1u);
        EXPECT_EQ(count_of(message, "\n"), 1u);

        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        AlignedMemory written(64_KiB), read(64_KiB);
        written.fill(1);
        expect_whole(transfer(*first, IoDirection::write, file, 0, written), 64_KiB);
        expect_whole(transfer(*second, IoDirection::read, file, 0, read), 64_KiB);
        EXPECT_TRUE(written == read);
      },
      GetParam() == EPERM    ? "seccomp filter"
      : GetParam() == ENOSYS ? "no io_uring"
                             : "locked memory");
}

TEST_P(RefusedUring, is_an_error_when_io_uring_is_required) {
  expect_in_child(
      [] {
        refuse_system_call(SYS_io_uring_setup, static_cast<std::uint32_t>(GetParam()));
        try {
          make_io_engine({.require_io_uring = true});
          ADD_FAILURE() << "no error";
        } catch (const Error& error) {
          std::fputs(error.what(), stderr);
        }
      },
      "io_uring is not available");
}

INSTANTIATE_TEST_SUITE_P(Codes, RefusedUring, ::testing::Values(EPERM, ENOSYS, ENOMEM),
                         [](const auto& tested) {
                           return tested.param == EPERM    ? "EPERM"
                                  : tested.param == ENOSYS ? "ENOSYS"
                                                           : "ENOMEM";
                         });

TEST(PartlyRefusedUring, is_found_where_rings_can_be_made_and_not_used) {
  for (const long call : {SYS_io_uring_enter, SYS_io_uring_register})
    expect_in_child(
        [&] {
          refuse_system_call(static_cast<std::uint32_t>(call), EPERM);
          EXPECT_EQ(make_io_engine({})->name(), "threads");
          EXPECT_THROW(make_io_engine({.require_io_uring = true}), Error);
        },
        "io_uring is not available");
}

// A4: root is exempt from the limit, so the test becomes nobody where it can.
TEST(LowMemlock, a_hundred_rings_work_for_an_ordinary_user_with_64_kib) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        const rlimit limit{64 << 10, 64 << 10};
        ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
        constexpr uid_t nobody = 65534;
        if (::geteuid() == 0) {
          ASSERT_EQ(::setresgid(nobody, nobody, nobody), 0);
          ASSERT_EQ(::setresuid(nobody, nobody, nobody), 0);
        }
        const AlignedMemory memory(1_MiB);
        for (int i = 0; i < 100; ++i) {
          const auto engine = make_io_engine({});
          expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 1_MiB);
          EXPECT_EQ(engine->name(), "io_uring");
        }
      },
      "");
}

TEST(IoEngine, is_io_uring_where_the_kernel_allows_it) {
  const auto engine = make_io_engine({.require_io_uring = true});
  EXPECT_EQ(engine->name(), "io_uring");
}

TEST(IoTicket, an_empty_one_is_false_and_waiting_for_it_is_a_bug) {
  IoTicket ticket;
  EXPECT_FALSE(ticket);
  EXPECT_THROW((void)ticket.wait(), std::logic_error);
  EXPECT_THROW((void)ticket.done(), std::logic_error);
  EXPECT_THROW((void)ticket.take(), std::logic_error);
}

}  // namespace
}  // namespace headrace::testing
