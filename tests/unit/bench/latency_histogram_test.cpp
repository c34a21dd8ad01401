#include "src/bench/latency_histogram.h"

#include <gtest/gtest.h>

#include <limits>

namespace headrace {
namespace {

TEST(LatencyHistogram, quantiles_are_within_three_percent_at_every_scale) {
  for (const std::uint64_t time : {1ull, 31ull, 32ull, 63ull, 64ull, 100ull, 4097ull, 1'000'000ull,
                                   123'456'789ull, 7'000'000'000ull, 1ull << 62}) {
    LatencyHistogram times;
    times.add(time);
    EXPECT_NEAR(times.quantile(0.5) * 1e9 / static_cast<double>(time), 1, 0.03) << time;
  }
}

TEST(LatencyHistogram, a_quantile_is_the_time_that_its_share_does_not_exceed) {
  LatencyHistogram times;
  for (std::uint64_t i = 1; i <= 1000; ++i) times.add(i * 1000);
  EXPECT_NEAR(times.quantile(0.5), 500e-6, 15e-6);
  EXPECT_NEAR(times.quantile(0.99), 990e-6, 30e-6);
  EXPECT_NEAR(times.quantile(0), 1e-6, 1e-7);
  EXPECT_NEAR(times.quantile(1), 1e-3, 3e-5);
}

TEST(LatencyHistogram, one_slow_block_in_a_hundred_is_beyond_the_99th_percentile_and_two_are_not) {
  LatencyHistogram times;
  for (int i = 0; i < 99; ++i) times.add(1000);
  times.add(1'000'000);
  EXPECT_NEAR(times.quantile(0.99), 1e-6, 1e-7);
  times.add(1'000'000);
  EXPECT_NEAR(times.quantile(0.99), 1e-3, 3e-5);
}

TEST(LatencyHistogram, adding_one_to_another_is_adding_its_times) {
  LatencyHistogram all, first, second;
  for (std::uint64_t i = 1; i < 500; ++i) {
    all.add(i * i);
    (i % 3 == 0 ? first : second).add(i * i);
  }
  first.add(second);
  EXPECT_EQ(first.count(), all.count());
  for (const double q : {0.1, 0.5, 0.9, 0.99}) EXPECT_EQ(first.quantile(q), all.quantile(q));
}

TEST(LatencyHistogram, holds_every_time_and_none) {
  LatencyHistogram times;
  EXPECT_EQ(times.quantile(0.5), 0);
  times.add(0);
  times.add(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(times.count(), 2u);
  EXPECT_EQ(times.quantile(0.5), 0);
  EXPECT_GT(times.quantile(1), 1e9);
}

}  // namespace
}  // namespace headrace
