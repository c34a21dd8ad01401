#include "aio/request_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/bounded_wait.h"

namespace headrace::aio {
namespace {

std::shared_ptr<Operation> operation(IoDirection direction, Bytes bytes = 4096, std::uint64_t offset = 0) {
  return std::make_shared<Operation>(Operation{
      .direction = direction, .offset = offset, .transfer = Transfer(bytes, 4096, 1), .job = nullptr});
}

TEST(RequestQueue, reads_go_before_writes_that_came_earlier) {
  RequestQueue queue;
  const auto write = operation(IoDirection::write), read = operation(IoDirection::read);
  queue.add(write);
  queue.add(read);
  EXPECT_EQ(queue.try_next()->operation, read);
  EXPECT_EQ(queue.try_next()->operation, write);
  EXPECT_FALSE(queue.try_next());
}

TEST(RequestQueue, endless_reads_do_not_starve_a_write) {
  RequestQueue queue;
  const auto write = operation(IoDirection::write);
  queue.add(operation(IoDirection::read, 4096 * 1000));
  queue.add(write);
  int reads = 0;
  while (queue.try_next()->operation != write) ASSERT_LT(++reads, 100);
  EXPECT_GT(reads, 0);
}

TEST(RequestQueue, a_write_whose_turn_comes_while_it_cannot_bounce_goes_as_soon_as_it_can) {
  RequestQueue queue;
  const auto write = operation(IoDirection::write);
  write->bounced = true;
  queue.add(operation(IoDirection::read, 4096 * 1000));
  queue.add(write);
  for (int i = 0; i < 50; ++i) ASSERT_NE(queue.try_next(false)->operation, write);
  EXPECT_EQ(queue.try_next(true)->operation, write);
}

TEST(RequestQueue, operations_of_one_direction_are_served_in_order) {
  RequestQueue queue;
  for (std::uint64_t offset = 0; offset < 3; ++offset)
    queue.add(operation(IoDirection::read, 8192, offset << 20));
  for (std::uint64_t offset = 0; offset < 3; ++offset) {
    EXPECT_EQ(queue.try_next()->offset(), offset << 20);
    EXPECT_EQ(queue.try_next()->offset(), (offset << 20) + 4096);
  }
}

TEST(RequestQueue, a_resumed_operation_goes_before_younger_ones) {
  RequestQueue queue;
  const auto old = operation(IoDirection::read), young = operation(IoDirection::read);
  queue.add(old);
  const auto request = queue.try_next();
  EXPECT_FALSE(queue.try_next());  // `old` has left the queue
  queue.add(young);
  EXPECT_FALSE(queue.complete(*request, 1000));
  const auto resumed = queue.try_next();
  EXPECT_EQ(resumed->operation, old);
  EXPECT_EQ(resumed->offset(), 1000u);
  EXPECT_TRUE(queue.complete(*resumed, 3096));
}

TEST(RequestQueue, close_releases_waiting_workers_after_the_last_request) {
  RequestQueue queue;
  queue.add(operation(IoDirection::write));
  std::atomic<int> served{0};
  std::atomic<bool> released{false};
  std::jthread worker([&] {
    while (queue.wait_next()) ++served;
    released = true;
  });
  EXPECT_TRUE(test::eventually([&] { return served == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // by now it waits
  EXPECT_FALSE(released);
  queue.close();
  EXPECT_TRUE(test::eventually([&] { return released.load(); }));
}

}  // namespace
}  // namespace headrace::aio
