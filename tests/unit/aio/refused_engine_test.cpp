// Engines whose kernel refuses to go on.
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "aio/transfer.h"
#include "tests/support/fault_io_engine.h"
#include "tests/unit/aio/in_child.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;
using ::testing::HasSubstr;

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t awaiting = 1;  // a bit of io_uring_enter's number of completions to wait for

TEST(UringFaults, a_ring_that_may_no_longer_be_entered_fails_transfers_with_the_errno_and_hangs_none) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        const AlignedMemory memory(64_KiB);
        const auto engine = make_uring_engine({.queue_depth = 2, .request_bytes = 4096});
        expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 64_KiB);
        refuse_system_call(SYS_io_uring_enter, EBADF);
        for (int i = 0; i < 3; ++i) {
          IoTicket first = engine->submit(IoDirection::write, file, 0, memory.lease(), 64_KiB);
          IoTicket second = engine->submit(IoDirection::read, file, 0, memory.lease(), 64_KiB);
          EXPECT_EQ(first.wait().code, EBADF);
          EXPECT_EQ(second.wait().code, EBADF);
        }
      },
      "");
}

TEST(UringFaults, what_the_kernel_has_taken_is_waited_for_when_waiting_is_refused) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        AlignedMemory memory(64_KiB), read(64_KiB);
        const auto engine = make_uring_engine({.queue_depth = 1});
        expect_whole(transfer(*engine, IoDirection::write, file, 0, memory.fill(1)), 64_KiB);
        IoTicket taken = engine->submit(IoDirection::read, file, 0, read.lease(), 64_KiB);
        refuse_system_call(SYS_io_uring_enter, EPERM, awaiting);
        expect_whole(taken.wait(), 64_KiB);
        EXPECT_TRUE(read == memory);
      },
      "");
}

TEST(UringFaults, a_kernel_short_of_memory_for_waiting_delays_transfers_only) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        AlignedMemory memory(64_KiB), read(64_KiB);
        const auto engine = make_uring_engine({.queue_depth = 2, .request_bytes = 4096});
        expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 64_KiB);
        refuse_system_call(SYS_io_uring_enter, ENOMEM, awaiting);
        for (std::uint64_t i = 0; i < 5; ++i) {
          expect_whole(transfer(*engine, IoDirection::write, file, 0, memory.fill(i)), 64_KiB);
          expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 64_KiB);
          EXPECT_TRUE(read == memory);
        }
      },
      "");
}

// What nobody waits for is driven by a thread of the engine, which may not start.
TEST(UringFaults, without_a_thread_of_its_own_the_ring_goes_on_while_someone_waits) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        AlignedMemory memory(256_KiB), read(256_KiB);
        refuse_system_call(SYS_clone, EAGAIN);
        refuse_system_call(SYS_clone3, EAGAIN);
        const auto engine = make_uring_engine({.queue_depth = 1, .request_bytes = 4096});
        CapturedStandardError captured;
        expect_whole(transfer(*engine, IoDirection::write, file, 0, memory.fill(1)), 256_KiB);
        expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 256_KiB);
        EXPECT_TRUE(read == memory);
        EXPECT_THAT(captured.text(), HasSubstr("pids.max"));
      },
      "thread of the I/O engine was refused");
}

// Who completes the others' requests then waits for one that the kernel could not take.
TEST(UringFaults, without_a_thread_of_its_own_a_request_is_tried_again_all_the_same) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const auto plan = std::make_shared<FaultPlan>();
        plan->add({.every = 2, .code = EAGAIN});
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        AlignedMemory memory(64_KiB), read(64_KiB);
        refuse_system_call(SYS_clone, EAGAIN);
        refuse_system_call(SYS_clone3, EAGAIN);
        const auto engine =
            aio::make_uring_engine({.queue_depth = 4, .request_bytes = 4096}, plan->request_hook());
        expect_whole(transfer(*engine, IoDirection::write, file, 0, memory.fill(1)), 64_KiB);
        expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 64_KiB);
        EXPECT_TRUE(read == memory);
        EXPECT_GE(plan->hits(), 32u);
      },
      "");
}

// A write that makes a file longer blocks: the kernel gives it to a thread, and cancels it when there is
// none.
TEST(UringFaults, without_workers_of_the_kernel_what_blocks_is_carried_out_with_one_warning) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        constexpr Bytes bytes = 256_KiB;
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        AlignedMemory memory(bytes + 1), read(bytes + 1);
        allow_no_more_threads();
        const auto engine = make_uring_engine({.queue_depth = 16, .request_bytes = 16_KiB});
        CapturedStandardError captured;
        const auto start = Clock::now();
        for (const Bytes shift : {0, 1}) {  // of the memory: the second transfer goes through copies
          const auto shifted = [&](const AlignedMemory& whole) {
            return HostLease::borrowed(whole.span().subspan(shift, bytes));
          };
          memory.fill(shift), read.fill(9);
          const std::uint64_t at = shift * bytes;
          expect_whole(engine->submit(IoDirection::write, file, at, shifted(memory), bytes).wait(), bytes);
          expect_whole(engine->submit(IoDirection::read, file, at, shifted(read), bytes).wait(), bytes);
          EXPECT_TRUE(std::ranges::equal(shifted(read).memory(), shifted(memory).memory()));
        }
        EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
        const std::string message = captured.text();
        EXPECT_THAT(message, HasSubstr("ulimit -u"));
        EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << message;
      },
      "pids.max");
}

// Each time that the kernel looks for a thread takes it some 30 ms.
TEST(UringFaults, a_kernel_without_workers_is_not_asked_for_them_each_time) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        constexpr int transfers = 100;
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        const AlignedMemory memory(4096);
        allow_no_more_threads();
        const auto engine = make_uring_engine({});
        expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 4096);
        const auto start = Clock::now();
        for (std::uint64_t i = 1; i <= transfers; ++i)
          expect_whole(transfer(*engine, IoDirection::write, file, i * 4096, memory), 4096);
        EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(transfers * 15));
      },
      "pids.max");
}

// With pwrite refused, it shows by whom a write was carried out.
TEST(UringFaults, what_is_cancelled_too_often_is_written_by_a_call_that_blocks) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const auto plan = std::make_shared<FaultPlan>();
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        const AlignedMemory memory(4096);
        const auto engine = aio::make_uring_engine({}, plan->request_hook());
        refuse_system_call(SYS_pwrite64, EXDEV);
        const auto code_after = [&](std::uint64_t times) {
          plan->clear();
          plan->add({.count = times, .code = ECANCELED});
          return transfer(*engine, IoDirection::write, file, 0, memory).code;
        };
        EXPECT_EQ(code_after(aio::Transfer::max_cancelled - 1), 0);
        EXPECT_EQ(code_after(aio::Transfer::max_cancelled), EXDEV);
        EXPECT_EQ(code_after(1), EXDEV) << "what was found is remembered";
      },
      "pids.max");
}

// The limit of threads counts the kernel's too, those that write as well: what is read needs none.
TEST(UringFaults, without_the_kernels_thread_submission_is_by_system_calls_with_one_warning) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        AlignedMemory memory(64_KiB), read(64_KiB);
        expect_whole(transfer(*make_uring_engine({}), IoDirection::write, file, 0, memory.fill(1)), 64_KiB);
        allow_no_more_threads();
        CapturedStandardError captured;
        for (int i = 0; i < 3; ++i) {
          const auto engine = make_uring_engine({.queue_depth = 4, .poll_submissions = true});
          read.fill(2);
          expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 64_KiB);
          EXPECT_TRUE(read == memory);
        }
        const std::string message = captured.text();
        EXPECT_THAT(message, HasSubstr("SQPOLL"));
        EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << message;
      },
      "pids.max");
}

TEST(ThreadFaults, no_thread_at_all_is_an_error_of_the_submit) {
  const IoFolder folder;
  expect_in_child(
      [&] {
        const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
        const AlignedMemory memory(4096);
        refuse_system_call(SYS_clone, EAGAIN);
        refuse_system_call(SYS_clone3, EAGAIN);
        const auto engine = make_thread_engine({});
        try {
          (void)engine->submit(IoDirection::write, file, 0, memory.lease(), 4096);
          ADD_FAILURE() << "no error";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("pids.max"));
        }
      },
      "");
}

// The kernel's thread takes requests in its own time: registrations end between submit and that.
TEST(UringFaults, with_submission_by_the_kernel_registrations_come_and_go_and_no_transfer_fails) {
  const IoFolder folder;
  const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
  const auto engine =
      make_uring_engine({.queue_depth = 4, .request_bytes = 16_KiB, .poll_submissions = true});
  AlignedMemory memory(256_KiB), read(256_KiB);
  std::atomic<bool> stop{false};
  std::jthread registrar([&] {
    while (!stop) const IoRegistration registration = engine->register_memory(memory.span());
  });
  for (std::uint64_t i = 0; i < 100; ++i) {
    expect_whole(transfer(*engine, IoDirection::write, file, 0, memory.fill(i)), 256_KiB);
    expect_whole(transfer(*engine, IoDirection::read, file, 0, read), 256_KiB);
    ASSERT_TRUE(read == memory);
  }
  stop = true;
}

TEST(UringFaults, with_submission_by_the_kernel_every_slot_may_be_used_again_at_once) {
  const IoFolder folder;
  const IoFile file = IoFile::open(folder.file("data"), IoFile::Mode::create);
  const auto engine = make_uring_engine({.queue_depth = 8, .request_bytes = 4096, .poll_submissions = true});
  AlignedMemory memory(2_MiB), read(2_MiB);
  expect_whole(transfer(*engine, IoDirection::write, file, 0, memory.fill(1)), 2_MiB);
  std::vector<IoTicket> tickets;
  for (Bytes at = 0; at < 2_MiB; at += 32_KiB)
    tickets.push_back(engine->submit(IoDirection::read, file, at,
                                     HostLease::borrowed(read.span().subspan(at, 32_KiB)), 32_KiB));
  for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), 32_KiB);
  EXPECT_TRUE(read == memory);
}

}  // namespace
}  // namespace headrace::testing
