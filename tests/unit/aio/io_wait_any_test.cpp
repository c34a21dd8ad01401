// Whichever of several transfers ends first wakes the thread that waits for them.
#include "headrace/io_wait_any.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "headrace/io_batch.h"
#include "tests/unit/aio/hooked_engines.h"
#include "tests/unit/aio/in_child.h"
#include "tests/unit/aio/io_fixture.h"

namespace headrace::testing {
namespace {

using namespace headrace::literals;

constexpr Bytes block_bytes = 4096;
constexpr std::uint32_t blocks = 8;

// Reads of a block that is held back are answered EAGAIN: the engine tries them again and again.
class WaitForAnyTest : public ::testing::TestWithParam<HookedEngine> {
 protected:
  WaitForAnyTest() {
    memory_.fill(3);
    expect_whole(transfer(*engine_, IoDirection::write, file_, 0, memory_), memory_.span().size());
  }
  IoTicket read(std::uint32_t block, IoEngine& engine) {
    return engine.submit(IoDirection::read, file_, block * block_bytes,
                         HostLease::borrowed(read_.span().subspan(block * block_bytes, block_bytes)),
                         block_bytes);
  }
  IoTicket read(std::uint32_t block) { return read(block, *engine_); }
  static std::vector<IoTicket*> all(std::vector<IoTicket>& tickets) {
    std::vector<IoTicket*> pointers;
    for (IoTicket& ticket : tickets) pointers.push_back(&ticket);
    return pointers;
  }

  IoFolder folder_;
  AlignedMemory memory_{blocks * block_bytes}, read_{blocks * block_bytes};
  IoFile file_ = IoFile::open(folder_.file("f"), IoFile::Mode::create);
  std::atomic<std::uint64_t> held_back_{~std::uint64_t{0}};  // an offset
  std::unique_ptr<IoEngine> engine_ =
      GetParam().make({.queue_depth = blocks},
                      [this](IoDirection direction, std::uint64_t offset, Bytes bytes) -> std::int64_t {
                        const bool held = direction == IoDirection::read && offset == held_back_;
                        return held ? -EAGAIN : static_cast<std::int64_t>(bytes);
                      });
};

INSTANTIATE_TEST_SUITE_P(Engines, WaitForAnyTest, hooked_engines(), ::testing::PrintToStringParamName());

TEST_P(WaitForAnyTest, returns_those_that_have_ended_while_another_is_held_back) {
  constexpr std::uint32_t slow = 2;
  held_back_ = slow * block_bytes;
  std::vector<IoTicket> tickets;
  for (std::uint32_t block = 0; block < blocks; ++block) tickets.push_back(read(block));
  std::vector<IoTicket*> waiting = all(tickets);
  std::size_t ended = 0;
  while (ended < blocks - 1) {
    const auto places = wait_for_any(waiting);
    ASSERT_FALSE(places.empty());
    EXPECT_TRUE(std::is_sorted(places.begin(), places.end()));
    for (auto place = places.rbegin(); place != places.rend(); ++place) {
      EXPECT_NE(waiting[*place], &tickets[slow]);
      expect_whole(waiting[*place]->wait(), block_bytes);
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(*place));
      ++ended;
    }
  }
  held_back_ = ~std::uint64_t{0};
  EXPECT_EQ(wait_for_any(waiting), std::vector<std::size_t>{0});
  expect_whole(tickets[slow].wait(), block_bytes);
  EXPECT_TRUE(read_ == memory_);
}

TEST_P(WaitForAnyTest, returns_at_once_what_has_ended_before) {
  std::vector<IoTicket> tickets;
  for (std::uint32_t block = 0; block < blocks; ++block) tickets.push_back(read(block));
  for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), block_bytes);
  EXPECT_EQ(wait_for_any(all(tickets)).size(), blocks);
}

TEST_P(WaitForAnyTest, sends_what_a_batch_has_kept_back) {
  const IoBatch batch(*engine_);
  std::vector<IoTicket> tickets;
  tickets.push_back(read(0));
  EXPECT_EQ(wait_for_any(all(tickets)), std::vector<std::size_t>{0});
}

TEST_P(WaitForAnyTest, of_no_ticket_ends_and_an_empty_one_is_a_mistake) {
  EXPECT_TRUE(wait_for_any({}).empty());
  IoTicket empty;
  std::vector<IoTicket*> tickets = {&empty};
  EXPECT_THROW(wait_for_any(tickets), std::logic_error);
}

// Nothing wakes a thread for both at once.
TEST_P(WaitForAnyTest, tickets_of_several_engines_are_looked_at_in_turn) {
  const auto other = GetParam().make({.queue_depth = 1}, {});
  held_back_ = 0;
  std::vector<IoTicket> tickets;
  tickets.push_back(read(0));
  tickets.push_back(read(1, *other));
  EXPECT_EQ(wait_for_any(all(tickets)), std::vector<std::size_t>{1});
  held_back_ = ~std::uint64_t{0};
}

// The other thread drives the ring, and nobody calls this one.
TEST_P(WaitForAnyTest, ends_beside_a_thread_that_waits_for_another_transfer) {
  held_back_ = 0;
  IoTicket slow = read(0);
  std::atomic<bool> ended{false};
  std::thread other([&] {
    expect_whole(slow.wait(), block_bytes);
    ended = true;
  });
  for (int round = 0; round < 50; ++round) {
    std::vector<IoTicket> tickets;
    for (std::uint32_t block = 1; block < blocks; ++block) tickets.push_back(read(block));
    EXPECT_FALSE(wait_for_any(all(tickets)).empty());
  }
  EXPECT_FALSE(ended);
  held_back_ = ~std::uint64_t{0};
  other.join();
}

TEST_P(WaitForAnyTest, in_a_forked_child_does_not_block) {
  held_back_ = 0;
  std::vector<IoTicket> tickets;
  tickets.push_back(read(0));
  expect_in_child([&] { EXPECT_EQ(wait_for_any(all(tickets)).size(), 1U); }, "");
  held_back_ = ~std::uint64_t{0};
}

// A device slower than a look: the thread sleeps in the kernel meanwhile.
TEST(WaitForAny, costs_no_more_time_of_a_cpu_than_waiting_for_one) {
  const IoFolder folder;
  const IoFile file = IoFile::open(folder.file("f"), IoFile::Mode::create);
  AlignedMemory memory(64_MiB);
  const auto engine = make_uring_engine({.queue_depth = blocks});
  const auto cpu_seconds = [&](bool any) {
    const std::clock_t before = std::clock();
    for (int round = 0; round < 4; ++round) {
      std::vector<IoTicket> tickets;
      std::vector<IoTicket*> waiting;
      for (std::uint32_t block = 0; block < blocks; ++block)
        tickets.push_back(engine->submit(IoDirection::write, file, block * 8_MiB,
                                         HostLease::borrowed(memory.span().subspan(block * 8_MiB, 8_MiB)),
                                         8_MiB));
      for (IoTicket& ticket : tickets) waiting.push_back(&ticket);
      while (any && !waiting.empty()) {
        const auto places = wait_for_any(waiting);
        for (auto place = places.rbegin(); place != places.rend(); ++place)
          waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(*place));
      }
      for (IoTicket& ticket : tickets) expect_whole(ticket.wait(), 8_MiB);
    }
    return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  };
  (void)cpu_seconds(false);  // the first write
  constexpr double noise = 0.02;
  EXPECT_LT(cpu_seconds(true), 2 * cpu_seconds(false) + noise);
}

}  // namespace
}  // namespace headrace::testing
