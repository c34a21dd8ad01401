#include "src/tune/closed_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace headrace::tune {
namespace {

// The pipeline that the closed form stands for, event by event: one path that carries one transfer at a time,
// reads first where a buffer is free; one block computed at a time; a buffer is free when its write is over.
double simulated(const BlockSeconds& block, std::uint64_t blocks, std::uint32_t buffers) {
  std::vector<double> computed, written;  // when each block was
  std::uint64_t read = 0;
  double path = 0;  // free from then on
  while (written.size() < blocks) {
    const std::uint64_t w = written.size();
    const double never = std::numeric_limits<double>::infinity();
    const double readable = read == blocks || read - w >= buffers ? never : path;
    const double writable = w < computed.size() ? std::max(path, computed[w]) : never;
    if (readable <= writable) {
      path = readable + block.read, ++read;
      computed.push_back(std::max(path, computed.empty() ? 0 : computed.back()) + block.compute);
    } else {
      path = writable + block.write;
      written.push_back(path);
    }
  }
  return written.empty() ? 0 : written.back();
}

TEST(ClosedForm, on_a_shared_path_adds_reads_and_writes) {
  for (const BlockSeconds& block :
       {BlockSeconds{2, 1, 1.5}, {1, 3, 1}, {1, 0.1, 4}, {1, 1, 1}, {1, 2, 1}, {3, 0, 2}, {0.1, 5, 0.1}})
    for (const std::uint32_t buffers : {1u, 3u, 4u, 8u})
      for (const std::uint64_t blocks : {1u, 500u, 1000u})
        EXPECT_NEAR(shared_path_step(block, blocks, buffers) / simulated(block, blocks, buffers), 1, 0.02)
            << block.read << ' ' << block.compute << ' ' << block.write << ", " << buffers << " buffers, "
            << blocks << " blocks";
  EXPECT_EQ(shared_path_step({.read = 1, .compute = 1, .write = 1}, 0, 3), simulated({1, 1, 1}, 0, 3));
}

// With reads and writes that hide the update, all that it adds is that of the first block.
TEST(ClosedForm, over_a_null_step_adds_one_compute_where_io_is_slower) {
  EXPECT_DOUBLE_EQ(step_over_null(100, 0.5, 50, 8), 100.5);
  EXPECT_DOUBLE_EQ(step_over_null(100, 3, 50, 8), 5 + 49 * 3);
}

// What a step costs in any case is paid once, not as often as the trial goes into the run.
TEST(StepOf, a_size_has_the_fixed_cost_once) {
  constexpr double fixed = 0.010, a_parameter = 1e-9;
  const auto step = [&](std::uint64_t parameters) {
    return TimedStep{parameters, fixed + a_parameter * static_cast<double>(parameters)};
  };
  for (const std::uint64_t parameters : {std::uint64_t{20'000'000}, std::uint64_t{7'000'000'000}})
    EXPECT_NEAR(step_of(parameters, step(10'000'000), step(100'000)), step(parameters).seconds, 1e-9);
}

TEST(StepOf, a_size_is_in_proportion_where_no_small_step_is_of_use) {
  const TimedStep large{1000, 2.0};
  EXPECT_EQ(step_of(4000, large, {}), 8.0);
  EXPECT_EQ(step_of(4000, large, {10, 2.5}), 8.0);    // noise
  EXPECT_EQ(step_of(4000, large, {1000, 1.0}), 8.0);  // not small
  EXPECT_EQ(step_of(5, large, {10, 1.0}), 0.01);      // less than the small one
}

}  // namespace
}  // namespace headrace::tune
