// The engines that other tests rely on: the fault engine and the delaying engine.
#include <cerrno>
#include <chrono>
#include <vector>

#include "tests/support/delaying_io_engine.h"
#include "tests/support/fault_io_engine.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class FaultEngineTest : public ::testing::Test {
 protected:
  IoResult write(std::uint64_t offset) {
    return transfer(*engine_, IoDirection::write, file_, offset, memory_);
  }
  IoResult read(std::uint64_t offset) {
    return transfer(*engine_, IoDirection::read, file_, offset, memory_);
  }

  IoFolder folder_;
  IoFile file_ = IoFile::open(folder_.file("data"), IoFile::Mode::create);
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::unique_ptr<IoEngine> engine_ = make_fault_engine(make_thread_engine({}), plan_);
  AlignedMemory memory_{8192};
};

TEST_F(FaultEngineTest, the_kth_transfer_of_a_direction_fails_and_no_other) {
  plan_->add({.direction = IoDirection::write, .first = 2, .count = 1, .code = EIO});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(write(0).code, i == 2 ? EIO : 0);
    EXPECT_TRUE(read(0).ok());
  }
  EXPECT_EQ(plan_->hits(), 1u);
}

TEST_F(FaultEngineTest, a_range_fails_for_every_transfer_that_touches_it) {
  plan_->add({.begin = 8192, .end = 8193, .code = EIO});
  EXPECT_TRUE(write(0).ok());
  EXPECT_EQ(write(4096).code, EIO);
  EXPECT_EQ(write(8192).code, EIO);
  EXPECT_TRUE(write(16384).ok());
}

TEST_F(FaultEngineTest, a_torn_write_leaves_its_first_bytes_in_the_file) {
  plan_->add({.direction = IoDirection::write, .code = ENOSPC, .moved_bytes = 4096});
  memory_.fill(1);
  const IoResult result = write(0);
  EXPECT_EQ(result.code, ENOSPC);
  EXPECT_EQ(result.bytes, 4096u);
  EXPECT_EQ(file_.size_bytes(), 4096u);
}

TEST_F(FaultEngineTest, other_files_are_not_hit_and_a_cleared_plan_hits_nothing) {
  plan_->add({.path_suffix = "/other", .code = EIO});
  EXPECT_TRUE(write(0).ok());
  plan_->add({.path_suffix = "/data", .code = EIO});
  EXPECT_EQ(write(0).code, EIO);
  plan_->clear();
  EXPECT_TRUE(write(0).ok());
}

TEST_F(FaultEngineTest, the_buffer_comes_back_from_a_failed_transfer) {
  plan_->add({.code = EIO});
  CountingOwner owner;
  IoTicket ticket = engine_->submit(IoDirection::write, file_, 0, HostLease(&owner, memory_.span()), 8192);
  EXPECT_EQ(ticket.wait().code, EIO);
  EXPECT_EQ(ticket.take().data(), memory_.span().data());
  EXPECT_EQ(owner.returned, 1);
}

class DelayingEngineTest : public ::testing::Test {
 protected:
  // Time until `count` transfers of each direction, submitted together, have ended.
  Clock::duration time_of(const DelayPlan& plan, int count) {
    const auto engine = make_delaying_engine(make_thread_engine({}), plan);
    std::vector<AlignedMemory> buffers;  // one for each transfer in flight
    for (int i = 0; i < 2 * count; ++i) buffers.emplace_back(4096);
    const auto start = Clock::now();
    std::vector<IoTicket> tickets;
    for (const AlignedMemory& buffer : buffers) {
      const auto direction = tickets.size() % 2 == 0 ? IoDirection::read : IoDirection::write;
      tickets.push_back(engine->submit(direction, file_, 0, buffer.lease(), 4096));
    }
    for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), 4096);
    return Clock::now() - start;
  }

  IoFolder folder_;
  IoFile file_ = [this] {
    IoFile file = IoFile::open(folder_.file("data"), IoFile::Mode::create);
    file.preallocate(4096);
    return file;
  }();
  AlignedMemory memory_{4096};
};

TEST_F(DelayingEngineTest, transfers_of_one_direction_queue_and_directions_overlap) {
  const auto time = time_of({.read = {.fixed = 50ms}, .write = {.fixed = 50ms}}, 4);
  EXPECT_GE(time, 200ms);
  EXPECT_LT(time, 390ms);  // one line would take 400 ms
}

TEST_F(DelayingEngineTest, a_shared_path_serves_both_directions_in_one_line) {
  EXPECT_GE(time_of({.read = {.fixed = 10ms}, .write = {.fixed = 10ms}, .shared_path = true}, 5), 100ms);
}

TEST_F(DelayingEngineTest, a_rate_takes_its_time_per_byte) {
  EXPECT_GE(time_of({.read = {.bytes_per_second = 4096 * 50.0}}, 2), 40ms);
}

TEST_F(DelayingEngineTest, a_transfer_is_not_done_before_its_time) {
  const auto engine = make_delaying_engine(make_thread_engine({}), {.write = {.fixed = 50ms}});
  IoTicket ticket = engine->submit(IoDirection::write, file_, 0, memory_.lease(), 4096);
  EXPECT_FALSE(ticket.done());
  expect_whole(ticket.wait(), 4096);
  EXPECT_TRUE(ticket.done());
  EXPECT_GT(engine->counters().wait_seconds, 0.02);
}

}  // namespace
}  // namespace headrace::testing
