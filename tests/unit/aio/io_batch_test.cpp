// Transfers that are kept back go when they have to, and are the same as others.
#include "headrace/io_batch.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/bounded_wait.h"
#include "tests/unit/aio/hooked_engines.h"
#include "tests/unit/aio/in_child.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;

constexpr Bytes block_bytes = 8192;
constexpr std::uint32_t depth = 32, kept_at_most = depth / 4 - 1;

// Counts the requests that go to the kernel.
class IoBatchTest : public ::testing::TestWithParam<HookedEngine> {
 protected:
  IoBatchTest() {
    memory_.fill(7);
    file_.preallocate(memory_.span().size());
  }
  IoTicket write(std::uint32_t block, IoEngine& engine) {
    return engine.submit(IoDirection::write, file_, block * block_bytes,
                         HostLease::borrowed(memory_of(block)), block_bytes);
  }
  IoTicket write(std::uint32_t block) { return write(block, *engine_); }
  std::span<std::byte> memory_of(std::uint32_t block) {
    return memory_.span().subspan(block * block_bytes, block_bytes);
  }
  bool keeps_back() const { return std::string(GetParam().name) == "uring"; }
  // The thread pool issues when its threads come to it.
  void expect_issued(std::uint32_t count) {
    if (keeps_back()) {
      EXPECT_EQ(requests_, count);
    }
  }
  void expect_written(std::uint32_t blocks) {
    AlignedMemory seen(blocks * block_bytes);
    expect_whole(transfer(*engine_, IoDirection::read, file_, 0, seen), seen.span().size());
    EXPECT_EQ(std::memcmp(seen.span().data(), memory_.span().data(), seen.span().size()), 0);
  }

  IoFolder folder_;
  AlignedMemory memory_{depth * block_bytes};
  IoFile file_ = IoFile::open(folder_.file("f"), IoFile::Mode::create);
  std::atomic<std::uint32_t> requests_{0};
  std::unique_ptr<IoEngine> engine_ =
      GetParam().make({.queue_depth = depth}, [this](IoDirection, std::uint64_t, Bytes bytes) {
        ++requests_;
        return static_cast<std::int64_t>(bytes);
      });
};

INSTANTIATE_TEST_SUITE_P(Engines, IoBatchTest, hooked_engines(), ::testing::PrintToStringParamName());

TEST_P(IoBatchTest, transfers_go_when_the_batch_ends) {
  std::vector<IoTicket> tickets;
  {
    const IoBatch batch(*engine_);
    for (std::uint32_t i = 0; i < kept_at_most; ++i) tickets.push_back(write(i));
    expect_issued(0);
  }
  expect_issued(kept_at_most);
  for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), block_bytes);
  expect_written(kept_at_most);
}

TEST_P(IoBatchTest, a_wait_for_any_of_them_sends_all) {
  const IoBatch batch(*engine_);
  std::vector<IoTicket> tickets;
  for (std::uint32_t i = 0; i < kept_at_most; ++i) tickets.push_back(write(i));
  expect_whole(tickets.back().wait(), block_bytes);
  expect_issued(kept_at_most);
  for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), block_bytes);
  expect_written(kept_at_most);
}

TEST_P(IoBatchTest, asking_whether_one_is_done_sends_all) {
  const IoBatch batch(*engine_);
  IoTicket ticket = write(0);
  EXPECT_TRUE(test::eventually([&] { return ticket.done(); }));
}

TEST_P(IoBatchTest, no_more_than_a_quarter_of_the_depth_is_kept_back) {
  const IoBatch batch(*engine_);
  std::vector<IoTicket> tickets;
  for (std::uint32_t i = 0; i <= kept_at_most; ++i) tickets.push_back(write(i));
  expect_issued(kept_at_most + 1);
  tickets.push_back(write(kept_at_most + 1));
  expect_issued(kept_at_most + 1);
}

TEST_P(IoBatchTest, a_depth_of_one_keeps_nothing_back) {
  std::atomic<std::uint32_t> requests{0};
  const auto engine = GetParam().make({.queue_depth = 1}, [&](IoDirection, std::uint64_t, Bytes bytes) {
    ++requests;
    return static_cast<std::int64_t>(bytes);
  });
  const IoBatch batch(*engine);
  IoTicket ticket = write(0, *engine);
  EXPECT_TRUE(test::eventually([&] { return requests == 1; }));
}

TEST_P(IoBatchTest, an_inner_batch_leaves_the_end_to_the_outer) {
  IoTicket ticket;
  {
    const IoBatch outer(*engine_);
    {
      const IoBatch inner(*engine_);
      ticket = write(0);
    }
    expect_issued(0);
    EXPECT_TRUE(IoBatch::is_open(*engine_));
  }
  EXPECT_FALSE(IoBatch::is_open(*engine_));
  expect_issued(1U);
}

TEST_P(IoBatchTest, a_batch_is_of_one_engine_and_one_thread) {
  const auto other = GetParam().make({.queue_depth = depth}, {});
  const IoBatch batch(*other);
  IoTicket of_another_engine = write(0);
  EXPECT_TRUE(test::eventually([&] { return requests_ == 1; }));
  const IoBatch mine(*engine_);
  IoTicket of_another_thread;
  std::thread([&] { of_another_thread = write(1); }).join();
  EXPECT_TRUE(test::eventually([&] { return requests_ == 2; }));
}

// The waiter finds nothing in flight and sleeps; the end of the batch has to call it.
TEST_P(IoBatchTest, another_thread_that_waits_for_one_goes_on_when_the_batch_ends) {
  IoTicket ticket;
  std::thread waiter;
  {
    const IoBatch batch(*engine_);
    ticket = write(0);
    waiter = std::thread([&] { expect_whole(ticket.wait(), block_bytes); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  waiter.join();
  expect_written(1);
}

TEST_P(IoBatchTest, unaligned_ends_are_not_kept_back) {
  const IoFile other = IoFile::open(folder_.file("g"), IoFile::Mode::create);
  AlignedMemory seen(block_bytes);
  {
    const IoBatch batch(*engine_);
    IoTicket whole = write(0);
    IoTicket ends = engine_->submit(IoDirection::write, other, 513, HostLease::borrowed(memory_of(1)), 7001);
    expect_whole(ends.wait(), 7001);
    expect_whole(whole.wait(), block_bytes);
    IoTicket read = engine_->submit(IoDirection::read, other, 513, seen.lease(), 7001);
    expect_whole(read.wait(), 7001);
  }
  EXPECT_EQ(std::memcmp(seen.span().data(), memory_of(1).data(), 7001), 0);
  EXPECT_EQ(other.size_bytes(), 7514);
  expect_written(1);
}

TEST_P(IoBatchTest, a_dropped_ticket_of_an_open_batch_waits_for_its_transfer) {
  {
    const IoBatch batch(*engine_);
    { const IoTicket dropped = write(0); }
    EXPECT_EQ(requests_, 1U);
  }
  expect_written(1);
}

TEST_P(IoBatchTest, a_batch_that_a_fork_copied_ends_in_peace) {
  const IoBatch batch(*engine_);
  IoTicket ticket = write(0);
  expect_in_child(
      [&] {
        const IoBatch inner(*engine_);
        EXPECT_TRUE(IoBatch::is_open(*engine_));
        const int code = ticket.wait().code;
        EXPECT_TRUE(code == ECANCELED || !keeps_back()) << code;  // a thread may have moved it before
      },
      "");
  expect_whole(ticket.wait(), block_bytes);
}

// A loop that keeps the depth full, four threads of them, each with a batch of its own.
TEST_P(IoBatchTest, loops_of_many_threads_lose_nothing) {
  constexpr std::uint32_t threads = 4, per_thread = depth / threads, rounds = 200;
  const auto loop = [&](std::uint32_t first) {
    const IoBatch batch(*engine_);
    std::vector<IoTicket> tickets(per_thread);
    for (std::uint32_t round = 0; round < rounds; ++round)
      for (std::uint32_t i = 0; i < per_thread; ++i) {
        if (tickets[i]) expect_whole(tickets[i].wait(), block_bytes);
        tickets[i] = write(first + i);
      }
  };
  std::vector<std::thread> running;
  for (std::uint32_t t = 0; t < threads; ++t) running.emplace_back(loop, t * per_thread);
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(engine_->counters().written_bytes, Bytes{rounds} * depth * block_bytes);
  expect_written(depth);
}

}  // namespace
}  // namespace headrace::testing
