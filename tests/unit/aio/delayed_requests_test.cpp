#include "aio/delayed_requests.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/bounded_wait.h"

namespace headrace::aio {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Delayed : public ::testing::Test {
 protected:
  struct Told {
    Bytes begin;
    Clock::time_point when;
  };
  bool add(Bytes begin, std::chrono::microseconds pause) {
    return delayed_.add({.operation = nullptr, .piece = {.begin = begin}}, pause);
  }
  std::vector<Told> told(std::size_t count) {
    EXPECT_TRUE(test::eventually([&] {
      const std::lock_guard lock(mutex_);
      return told_.size() == count;
    }));
    const std::lock_guard lock(mutex_);
    return told_;
  }

  std::mutex mutex_;
  std::vector<Told> told_;
  DelayedRequests delayed_{[this](const Request& request) {
    const std::lock_guard lock(mutex_);
    told_.push_back({request.piece.begin, Clock::now()});
  }};
};

TEST_F(Delayed, requests_are_told_of_when_their_pause_is_over_not_in_the_order_of_arrival) {
  const auto start = Clock::now();
  ASSERT_TRUE(add(1, 60ms) && add(2, 30ms) && add(3, 0us));
  const auto all = told(3);
  ASSERT_EQ(all.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].begin, 3 - i);
  EXPECT_GE(all[1].when, start + 30ms);
  EXPECT_GE(all[2].when, start + 60ms);
}

TEST_F(Delayed, requests_that_come_while_another_waits_do_not_wait_for_it) {
  ASSERT_TRUE(add(1, 10s));
  const auto start = Clock::now();
  ASSERT_TRUE(add(2, 1ms));
  EXPECT_EQ(told(1).front().begin, 2u);
  EXPECT_LT(Clock::now() - start, 5s);
}

}  // namespace
}  // namespace headrace::aio
