#include "headrace/cpu_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/errors.h"

namespace headrace {
namespace {

using Range = std::pair<std::uint64_t, std::uint64_t>;

std::multiset<Range> ranges_of(std::uint64_t count, std::uint64_t grain) {
  std::mutex mutex;
  std::multiset<Range> ranges;
  parallel_ranges(count, grain, [&](std::uint64_t begin, std::uint64_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace(begin, end);
  });
  return ranges;
}

class CpuPool : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_cpu_threads(GetParam()); }
  void TearDown() override { set_cpu_threads(0); }
};
INSTANTIATE_TEST_SUITE_P(Threads, CpuPool, testing::Values(1, 2, 3), testing::PrintToStringParamName());

TEST_P(CpuPool, ranges_are_cut_at_multiples_of_the_grain_whatever_the_threads) {
  EXPECT_EQ(cpu_threads(), GetParam());
  EXPECT_EQ(ranges_of(0, 8), std::multiset<Range>{});
  EXPECT_EQ(ranges_of(1, 8), (std::multiset<Range>{{0, 1}}));
  EXPECT_EQ(ranges_of(8, 8), (std::multiset<Range>{{0, 8}}));
  EXPECT_EQ(ranges_of(25, 8), (std::multiset<Range>{{0, 8}, {8, 16}, {16, 24}, {24, 25}}));
}

TEST_P(CpuPool, ranges_reach_beyond_32_bits) {
  const std::uint64_t count = (std::uint64_t{1} << 33) + 17, grain = std::uint64_t{1} << 31;
  const std::multiset<Range> ranges = ranges_of(count, grain);
  EXPECT_EQ(ranges.size(), 5u);
  EXPECT_EQ(*ranges.rbegin(), Range(std::uint64_t{1} << 33, count));
}

TEST_P(CpuPool, the_first_error_reaches_the_caller_and_the_pool_lives_on) {
  const auto fail_at_three = [](std::uint64_t begin, std::uint64_t) {
    if (begin == 3) throw std::runtime_error("piece 3");
  };
  EXPECT_THROW(parallel_ranges(100, 1, fail_at_three), std::runtime_error);
  EXPECT_EQ(ranges_of(100, 1).size(), 100u);
}

TEST_P(CpuPool, several_threads_and_nested_calls_share_the_pool) {
  std::atomic<std::uint64_t> sum = 0;
  const auto work = [&] {
    parallel_ranges(10, 1, [&](std::uint64_t, std::uint64_t) {
      parallel_ranges(10, 3, [&](std::uint64_t begin, std::uint64_t end) { sum += end - begin; });
    });
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(sum, 200u);
}

TEST(CpuPoolSize, never_more_threads_at_once_than_asked_for) {
  set_cpu_threads(2);
  std::atomic<int> running = 0, most = 0;
  parallel_ranges(64, 1, [&](std::uint64_t, std::uint64_t) {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --running;
  });
  set_cpu_threads(0);
  EXPECT_LE(most, 2);
}

TEST(CpuPoolSize, two_threads_run_two_pieces_at_once) {
  using namespace std::chrono_literals;
  set_cpu_threads(2);
  std::latch both_started(2);
  std::atomic<int> met = 0;
  parallel_ranges(2, 1, [&](std::uint64_t, std::uint64_t) {
    both_started.count_down();
    for (const auto deadline = std::chrono::steady_clock::now() + 10s;
         std::chrono::steady_clock::now() < deadline;) {
      if (both_started.try_wait()) {
        ++met;
        return;
      }
      std::this_thread::sleep_for(1ms);
    }
  });
  set_cpu_threads(0);
  EXPECT_EQ(met, 2);
}

TEST(CpuPoolSize, default_is_within_the_available_cpus_and_ignores_omp_num_threads) {
  ::setenv("OMP_NUM_THREADS", "77", 1);
  set_cpu_threads(0);
  EXPECT_GE(cpu_threads(), 1);
  EXPECT_LE(cpu_threads(), available_cpus());
  ::unsetenv("OMP_NUM_THREADS");
}

TEST(CpuPoolSize, refuses_a_negative_number_of_threads) {
  EXPECT_THROW(set_cpu_threads(-1), UsageError);
}

}  // namespace
}  // namespace headrace
