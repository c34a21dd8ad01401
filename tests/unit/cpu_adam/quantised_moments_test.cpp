// 8-bit moments over many steps beside fp32 ones: gradients that change while one element of each
// quantisation block, its largest, goes on.
#include <gtest/gtest.h>

#include <cmath>

#include "unit/cpu_adam/update_cases.h"

namespace headrace::test {
namespace {

// The gradient of all elements but the first of each block, whose gradient is 1, in two stretches of steps.
struct Course {
  float before;
  std::uint64_t steps_before;
  float after;
  std::uint64_t steps_after;
};

// Means over those elements.
struct Means {
  double parameter = 0, moment[most_moments] = {};  // of squared ones the roots
};

double kept_moment(const UpdateCase& c, const UpdateValues& values, std::size_t k, std::size_t i) {
  const bool squared = moment_of(c.format(), static_cast<int>(k)).squared;
  if (c.moments == MomentDType::f32) {
    const double moment = element(values.moments[k], DType::f32, i);
    return squared ? std::sqrt(moment) : moment;
  }
  const std::uint8_t code = values.moments[k][i];
  const float scale = values.scales[k][i / quantised_block_numel];
  return squared ? std::sqrt(decode_squared(code, scale)) : decode_signed(code, scale);
}

Means means_of(const UpdateCase& c, const UpdateValues& values) {
  Means sums;
  double count = 0;
  for (std::size_t i = 0; i < c.numel; ++i) {
    if (i % quantised_block_numel == 0) continue;
    ++count;
    sums.parameter += element(values.master, DType::f32, i);
    for (std::size_t k = 0; k < static_cast<std::size_t>(moment_count(c.format())); ++k)
      sums.moment[k] += kept_moment(c, values, k, i);
  }
  sums.parameter /= count;
  for (double& sum : sums.moment) sum /= count;
  return sums;
}

// From parameters and moments of 0.
Means run(const OptimizerArguments& arguments, MomentDType moments, const Course& course) {
  UpdateCase c = {
      .arguments = arguments, .moments = moments, .numel = 16 * quantised_block_numel, .first_element = 0};
  UpdateValues start = values_of(c, Inputs::ordinary, 1);
  std::fill(start.master.begin(), start.master.end(), std::uint8_t{0});
  for (Bits& bytes : start.moments) std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
  std::vector<float> gradient(c.numel, course.before);
  for (std::size_t i = 0; i < c.numel; i += quantised_block_numel) gradient[i] = 1.0f;
  start.gradient = encoded(gradient, DType::f32);

  UpdateArrays arrays(c, start);
  const UpdateSpan span = arrays.span();
  for (c.arguments.step = 1; c.arguments.step <= course.steps_before; ++c.arguments.step)
    optimizer_update(span, c.arguments);
  UpdateValues turned = arrays.values();
  for (std::size_t i = 0; i < c.numel; ++i)
    if (i % quantised_block_numel != 0) gradient[i] = course.after;
  turned.gradient = encoded(gradient, DType::f32);

  UpdateArrays rest(c, turned);
  const UpdateSpan rest_span = rest.span();
  for (; c.arguments.step <= course.steps_before + course.steps_after; ++c.arguments.step)
    optimizer_update(rest_span, c.arguments);
  return means_of(c, rest.values());
}

// Moments within 2%, parameters within 5% of what fp32 gives.
void expect_like_fp32(const OptimizerArguments& arguments, const Course& course) {
  const Means fp32 = run(arguments, MomentDType::f32, course),
              int8 = run(arguments, MomentDType::int8, course);
  for (std::size_t k = 0; k < most_moments; ++k)
    EXPECT_NEAR(int8.moment[k], fp32.moment[k], 0.02 * std::abs(fp32.moment[k])) << "moment " << k;
  EXPECT_NEAR(int8.parameter, fp32.parameter, 0.05 * std::abs(fp32.parameter));
}

TEST(QuantisedMoments, of_lion_follow_a_gradient_that_turns) {
  expect_like_fp32({.kind = OptimizerKind::lion, .learning_rate = 1e-4, .beta2 = 0.99},
                   {0.5f, 200, -0.15f, 10000});
}

TEST(QuantisedMoments, of_sgd_follow_a_gradient_that_turns) {
  for (const bool nesterov : {false, true})
    expect_like_fp32({.kind = OptimizerKind::sgd,
                      .learning_rate = 1e-4,
                      .momentum = 0.99,
                      .dampening = nesterov ? 0.0 : 0.99,
                      .nesterov = nesterov},
                     {0.5f, 200, -0.15f, 10000});
}

TEST(QuantisedMoments, of_adagrad_stay_when_gradients_end_while_the_scale_of_their_block_grows) {
  expect_like_fp32({.kind = OptimizerKind::adagrad, .learning_rate = 1e-2}, {1.0f, 100, 0.0f, 10000});
}

TEST(QuantisedMoments, of_adam_follow_a_gradient_that_falls_to_a_tenth) {
  expect_like_fp32({.kind = OptimizerKind::adam}, {1.0f, 1000, 0.1f, 10000});
}

TEST(QuantisedMoments, of_adam_follow_a_gradient_that_grows_tenfold) {
  expect_like_fp32({.kind = OptimizerKind::adam}, {0.01f, 1000, 0.1f, 10000});
}

// The largest second moments stay while others' grow.
TEST(QuantisedMoments, of_amsgrad_keep_the_largest_while_the_scale_of_their_block_grows) {
  expect_like_fp32({.kind = OptimizerKind::adam, .amsgrad = true}, {1.0f, 500, 0.1f, 10000});
}

}  // namespace
}  // namespace headrace::test
