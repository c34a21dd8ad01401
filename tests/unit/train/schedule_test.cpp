#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "headrace/config.h"

namespace headrace {
namespace {

TEST(Schedule, linear_warm_up_then_cosine_equals_the_closed_form) {
  const ScheduleOptions schedule{.peak = 2e-3, .floor = 2e-4, .warmup_steps = 10, .total_steps = 100};
  for (std::uint64_t i = 0; i < 10; ++i)
    EXPECT_DOUBLE_EQ(learning_rate(schedule, i), 2e-3 * static_cast<double>(i + 1) / 10);
  for (std::uint64_t i = 10; i < 100; ++i) {
    const double angle = std::numbers::pi * static_cast<double>(i - 9) / 90;
    EXPECT_NEAR(learning_rate(schedule, i), 1.1e-3 + 0.9e-3 * std::cos(angle), 1e-15);
  }
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 99), 2e-4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1000), 2e-4);
}

// FIELD-CASES N11.
TEST(Schedule, zero_warm_up_starts_next_to_the_peak) {
  const ScheduleOptions schedule{.peak = 1, .floor = 0, .warmup_steps = 0, .total_steps = 1000};
  EXPECT_NEAR(learning_rate(schedule, 0), 1, 1e-5);
}
TEST(Schedule, warm_up_as_long_as_the_run_ends_at_the_peak) {
  const ScheduleOptions schedule{.peak = 1, .floor = 0.1, .warmup_steps = 4, .total_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3), 1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 0.1);
}
TEST(Schedule, a_peak_of_zero_is_zero_everywhere) {
  const ScheduleOptions schedule{.peak = 0, .floor = 0, .warmup_steps = 3, .total_steps = 9};
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_EQ(learning_rate(schedule, i), 0);
}
TEST(Schedule, constant_keeps_the_peak_after_warm_up) {
  const ScheduleOptions schedule{
      .decay = ScheduleOptions::Decay::constant, .peak = 1, .warmup_steps = 2, .total_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.5);
  for (const std::uint64_t i : {1u, 5u, 10u, 99u}) EXPECT_DOUBLE_EQ(learning_rate(schedule, i), 1);
}
TEST(Schedule, one_step_in_all_runs_at_the_floor) {
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 1, .floor = 0.1, .warmup_steps = 0, .total_steps = 1}, 0), 0.1);
}

}  // namespace
}  // namespace headrace
