// The loss scale against deepspeed's own class (tests/python/loss_scale_reference.py), and what is not
// allowed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "headrace/errors.h"
#include "headrace/splitmix.h"
#include "tests/unit/zero/loss_scale_reference.h"

namespace headrace::testing {
namespace {

// FIELD-CASES N5: the same scale after each step, and the end where deepspeed's ends.
TEST(LossScaler, goes_through_the_scales_of_deepspeed_and_is_at_its_floor_where_that_gives_up) {
  int given_up = 0;
  for (std::size_t c = 0; c < loss_scale_figures.size(); ++c) {
    SCOPED_TRACE(fmt::format("case {}", c));
    const LossScaleFigures& figures = loss_scale_figures[c];
    const LossScaler scaler(figures.options);
    LossScale now = scaler.start();
    for (std::uint64_t step = 0; step < loss_scale_steps; ++step) {
      const bool overflow = splitmix64(c * 1000 + step) % figures.one_in == 0;
      ASSERT_EQ(step == figures.scales.size(), overflow && scaler.at_floor(now)) << step;
      if (step == figures.scales.size()) {
        ++given_up;
        break;
      }
      now = scaler.next(now, overflow);
      ASSERT_EQ(now.scale, figures.scales[step]) << step;
    }
  }
  EXPECT_GT(given_up, 1);
  EXPECT_LT(given_up, static_cast<int>(loss_scale_figures.size()) - 1);
}

TEST(LossScaler, that_is_fixed_never_changes_and_has_no_floor) {
  const LossScaler scaler({.fixed = 128});
  const LossScale start = scaler.start();
  EXPECT_EQ(start.scale, 128);
  EXPECT_EQ(scaler.next(start, true), start);
  EXPECT_EQ(scaler.next(start, false), start);
  EXPECT_FALSE(scaler.at_floor(start));
  EXPECT_EQ(scaler.resumed({.scale = 65536, .good_steps = 7, .hysteresis_left = 2}), start);
}

TEST(LossScaler, gives_scales_that_fp32_holds) {
  EXPECT_EQ(LossScaler({.fixed = 0.1}).start().scale, static_cast<double>(0.1f));
  const LossScaler scaler({.initial_power = 0, .hysteresis = 1, .minimum = 0.7});
  EXPECT_EQ(scaler.next(scaler.start(), true).scale, static_cast<double>(0.7f));
  EXPECT_TRUE(scaler.at_floor(scaler.next(scaler.start(), true)));
  EXPECT_THROW(LossScaler({.minimum = 1e-60}), UsageError);
}

TEST(LossScaler, stops_growing_where_its_inverse_would_leave_fp32) {
  const LossScaler scaler({.initial_power = LossScaler::largest_power, .window = 1});
  LossScale now = scaler.start();
  for (int step = 0; step < 5; ++step) now = scaler.next(now, false);
  EXPECT_EQ(now.scale, std::ldexp(1.0, LossScaler::largest_power));
  EXPECT_TRUE(std::isnormal(static_cast<float>(1 / now.scale)));
}

// The commit of a run with other options: what cannot be with these is brought into their range.
TEST(LossScaler, resumes_from_a_commit_of_other_options) {
  const LossScaler scaler({.hysteresis = 2, .minimum = 4});
  const LossScale inside{.scale = 64, .good_steps = 5, .hysteresis_left = 2};
  EXPECT_EQ(scaler.resumed(inside), inside);
  EXPECT_EQ(scaler.resumed({.scale = 1, .good_steps = 5, .hysteresis_left = 9}),
            (LossScale{.scale = 4, .good_steps = 5, .hysteresis_left = 2}));
}

TEST(LossScaler, resumes_from_a_fixed_scale_as_a_search_that_begins_there_and_back) {
  const LossScaler search({.window = 3, .hysteresis = 3}), fixed({.fixed = 1024});
  const LossScale begun = search.resumed(fixed.next(fixed.start(), false));
  EXPECT_EQ(begun, (LossScale{.scale = 1024, .good_steps = 0, .hysteresis_left = 3}));
  LossScale now = search.next(search.next(begun, true), true);
  EXPECT_EQ(now.scale, 1024);
  now = search.next(now, true);
  EXPECT_EQ(now.scale, 512);
  EXPECT_EQ(fixed.resumed(now), fixed.start());
  EXPECT_EQ(search.resumed(fixed.resumed(now)), begun);
}

// FIELD-CASES N5.
TEST(LossScaler, without_meaning_is_refused) {
  const double infinite = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const LossScaleOptions& options : {LossScaleOptions{.window = 0},
                                          {.minimum = 0},
                                          {.minimum = -1},
                                          {.minimum = nan},
                                          {.minimum = infinite},
                                          {.initial_power = 3, .minimum = 16},
                                          {.initial_power = 101},
                                          {.hysteresis = 0},
                                          {.fixed = -1},
                                          {.fixed = nan},
                                          {.fixed = infinite}})
    EXPECT_THROW(LossScaler{options}, UsageError)
        << options.fixed << " " << options.window << " " << options.minimum << " " << options.hysteresis;
}

}  // namespace
}  // namespace headrace::testing
