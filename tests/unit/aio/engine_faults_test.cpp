// The two real engines when the kernel makes short transfers or fails, through aio/request_hook.h.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <vector>

#include "aio/transfer.h"
#include "tests/support/fault_io_engine.h"
#include "tests/unit/aio/hooked_engines.h"
#include "tests/unit/aio/in_child.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;

class EngineFaults : public ::testing::TestWithParam<HookedEngine> {
 protected:
  std::unique_ptr<IoEngine> make() const {
    return GetParam().make({.queue_depth = 4, .request_bytes = 64_KiB}, plan_->request_hook());
  }
  IoFile create(bool direct = true) const {
    return IoFile::open(folder_.file("data"), IoFile::Mode::create, direct);
  }
  void expect_round_trip(IoEngine& engine, const IoFile& file, Bytes bytes) {
    AlignedMemory written(bytes), read(bytes);
    written.fill(1);
    expect_whole(transfer(engine, IoDirection::write, file, 0, written), bytes);
    expect_whole(transfer(engine, IoDirection::read, file, 0, read), bytes);
    EXPECT_TRUE(written == read);
    EXPECT_EQ(engine.counters().written_bytes, bytes);
    EXPECT_EQ(engine.counters().read_bytes, bytes);
  }

  IoFolder folder_;
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
};

// A5
TEST_P(EngineFaults, short_transfers_are_resumed_and_reported_whole) {
  plan_->add({.moved_bytes = 12288});
  expect_round_trip(*make(), create(), 1_MiB + 4096);
  EXPECT_GE(plan_->hits(), 2 * (1_MiB + 4096) / 12288);
}

TEST_P(EngineFaults, short_transfers_of_odd_sizes_are_resumed_on_a_buffered_file) {
  plan_->add({.moved_bytes = 777});
  expect_round_trip(*make(), create(false), 100'001);
}

TEST_P(EngineFaults, interrupted_requests_are_repeated) {
  plan_->add({.every = 2, .code = EINTR});
  expect_round_trip(*make(), create(), 1_MiB);
  EXPECT_GE(plan_->hits(), 30u);
}

TEST_P(EngineFaults, requests_to_be_tried_again_are) {
  plan_->add({.count = 20, .code = EAGAIN});
  expect_round_trip(*make(), create(), 1_MiB);
  EXPECT_EQ(plan_->hits(), 20u);
}

// So the kernel answers when the thread that asked has ended.
TEST_P(EngineFaults, cancelled_requests_are_asked_for_again) {
  constexpr std::uint64_t times = aio::Transfer::max_cancelled - 1;
  plan_->add({.count = times, .code = ECANCELED});
  expect_round_trip(*make(), create(), 64_KiB);
  EXPECT_EQ(plan_->hits(), times);
}

TEST_P(EngineFaults, a_request_that_is_cancelled_again_and_again_is_given_up) {
  plan_->add({.code = ECANCELED});
  const AlignedMemory memory(4096);
  EXPECT_EQ(transfer(*make(), IoDirection::write, create(), 0, memory).code, ECANCELED);
  EXPECT_EQ(plan_->hits(), aio::Transfer::max_cancelled + 1u);
}

// The page cache takes the writes beside it at once: they are done long before the kernel would be given up.
TEST_P(EngineFaults, a_request_to_be_tried_again_later_holds_no_other_up) {
  std::atomic<bool> refused{true};
  const auto engine = GetParam().make(
      {.queue_depth = 1, .request_bytes = 64_KiB}, [&](IoDirection, std::uint64_t offset, Bytes bytes) {
        return refused && offset >= 1_MiB ? -std::int64_t{EAGAIN} : static_cast<std::int64_t>(bytes);
      });
  const IoFile file = create(false);
  AlignedMemory memory(64_KiB), read(64_KiB);
  memory.fill(1);
  IoTicket waiting = engine->submit(IoDirection::write, file, 1_MiB, memory.lease(), 64_KiB);
  for (std::uint64_t i = 0; i < 4; ++i)
    expect_whole(transfer(*engine, IoDirection::write, file, i * 64_KiB, memory), 64_KiB);
  EXPECT_FALSE(waiting.done());
  refused = false;
  expect_whole(waiting.wait(), 64_KiB);
  expect_whole(transfer(*engine, IoDirection::read, file, 1_MiB, read), 64_KiB);
  EXPECT_TRUE(read == memory);
}

// The kernel takes nothing for a while: so long at least is the wait.
TEST_P(EngineFaults, a_wait_for_a_slow_device_is_counted) {
  using Clock = std::chrono::steady_clock;
  const auto from = Clock::now() + std::chrono::milliseconds(200);
  const auto engine = GetParam().make({}, [from](IoDirection, std::uint64_t, Bytes bytes) {
    return Clock::now() < from ? -std::int64_t{EAGAIN} : static_cast<std::int64_t>(bytes);
  });
  const IoFile file = create();
  const AlignedMemory memory(4096);
  IoTicket ticket = engine->submit(IoDirection::write, file, 0, memory.lease(), 4096);
  const double least = std::chrono::duration<double>(from - Clock::now()).count();
  expect_whole(ticket.wait(), 4096);
  EXPECT_GT(engine->counters().wait_seconds, least / 2);
}

TEST_P(EngineFaults, a_request_that_is_refused_again_and_again_is_given_up) {
  plan_->add({.code = EAGAIN});
  const auto engine = make();
  const IoFile file = create();
  const AlignedMemory memory(4096);
  const IoResult result = transfer(*engine, IoDirection::write, file, 0, memory);
  EXPECT_EQ(result.code, EAGAIN);
  EXPECT_EQ(result.bytes, 0u);
  EXPECT_EQ(plan_->hits(), aio::Transfer::max_again + 1u);
  plan_->clear();
  expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 4096);
}

TEST_P(EngineFaults, requests_to_be_tried_again_are_on_bounced_memory_too) {
  plan_->add({.every = 3, .code = EAGAIN});
  AlignedMemory written(1_MiB + 64), read(1_MiB + 64);
  written.fill(1);
  const auto engine = make();
  const IoFile file = create();
  if (!file.direct()) GTEST_SKIP() << "a buffered file takes any memory";
  const auto shifted = [](const AlignedMemory& memory) {
    return HostLease::borrowed(memory.span().subspan(1, 1_MiB));
  };
  expect_whole(engine->submit(IoDirection::write, file, 0, shifted(written), 1_MiB).wait(), 1_MiB);
  expect_whole(engine->submit(IoDirection::read, file, 0, shifted(read), 1_MiB).wait(), 1_MiB);
  EXPECT_TRUE(std::ranges::equal(read.span().subspan(1, 1_MiB), written.span().subspan(1, 1_MiB)));
  EXPECT_GE(plan_->hits(), 2u);
  EXPECT_EQ(engine->counters().bounced_bytes, 2_MiB);
}

TEST_P(EngineFaults, a_mix_of_all_that_passes_changes_no_byte) {
  plan_->add({.first = 1, .every = 3, .code = EINTR});
  plan_->add({.first = 2, .every = 5, .code = EAGAIN});
  plan_->add({.every = 2, .moved_bytes = 4096});
  expect_round_trip(*make(), create(), 2_MiB);
}

TEST_P(EngineFaults, a_bad_range_ends_the_transfer_there_with_its_errno) {
  const auto engine = make();
  const IoFile file = create();
  AlignedMemory written(1_MiB), read(1_MiB);
  written.fill(1);
  expect_whole(transfer(*engine, IoDirection::write, file, 0, written), 1_MiB);
  plan_->add({.direction = IoDirection::read, .begin = 512_KiB, .end = 513_KiB, .code = EIO});
  const IoResult result = transfer(*engine, IoDirection::read, file, 0, read);
  EXPECT_EQ(result.code, EIO);
  EXPECT_LE(result.bytes, 512_KiB);
  EXPECT_TRUE(std::ranges::equal(read.span().first(result.bytes), written.span().first(result.bytes)));
  expect_whole(engine->submit(IoDirection::read, file, 0, read.lease(), 512_KiB).wait(), 512_KiB);
}

TEST_P(EngineFaults, a_full_disk_is_a_result_and_the_engine_goes_on) {
  plan_->add({.direction = IoDirection::write, .first = 3, .count = 1, .code = ENOSPC});
  const auto engine = make();
  const IoFile file = create();
  const AlignedMemory memory(1_MiB);
  const IoResult result = transfer(*engine, IoDirection::write, file, 0, memory);
  EXPECT_EQ(result.code, ENOSPC);
  EXPECT_LT(result.bytes, 1_MiB);
  expect_whole(transfer(*engine, IoDirection::write, file, 0, memory), 1_MiB);
}

TEST_P(EngineFaults, a_failed_transfer_leaves_those_beside_it_alone) {
  plan_->add({.begin = 1_MiB, .end = 2_MiB, .code = EIO});
  const auto engine = make();
  const IoFile file = create();
  const AlignedMemory memory(1_MiB);
  std::vector<IoTicket> tickets;
  for (std::uint64_t i = 0; i < 4; ++i)
    tickets.push_back(engine->submit(IoDirection::write, file, i * 1_MiB, memory.lease(), 1_MiB));
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(tickets[i].wait().code, i == 1 ? EIO : 0) << i;
}

TEST_P(EngineFaults, a_write_that_moves_nothing_is_an_error_not_an_endless_loop) {
  plan_->add({.direction = IoDirection::write, .moved_bytes = 0});
  const AlignedMemory memory(4096);
  EXPECT_EQ(transfer(*make(), IoDirection::write, create(), 0, memory).code, EIO);
}

TEST_P(EngineFaults, the_kernels_own_short_write_and_refusal_at_a_size_limit_surface) {
  expect_in_child(
      [this] {
        const rlimit limit{100 << 10, 100 << 10};
        ASSERT_EQ(::signal(SIGXFSZ, SIG_IGN), SIG_DFL);
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
        const AlignedMemory memory(256_KiB);
        const IoResult result = transfer(*make(), IoDirection::write, create(), 0, memory);
        EXPECT_EQ(result.code, EFBIG);
        EXPECT_LE(result.bytes, Bytes{100 << 10});
      },
      "");
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineFaults, hooked_engines(),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace headrace::testing
