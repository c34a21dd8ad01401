#include "src/zero/initial_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace headrace {
namespace {

TEST(InitialValues, of_a_range_do_not_depend_on_how_it_is_cut) {
  const ParameterSpec parameter{.name = "w", .shape = {1001}, .initial_std = 0.02f};
  std::vector<float> whole(1001), parts(1001);
  initial_values(parameter, 3, 0, whole);
  for (std::size_t first = 0; first < 1001; first += 7)
    initial_values(parameter, 3, first,
                   std::span(parts).subspan(first, std::min<std::size_t>(7, 1001 - first)));
  EXPECT_EQ(whole, parts);
}

TEST(InitialValues, have_the_mean_and_deviation_asked_for) {
  const ParameterSpec parameter{.name = "w", .shape = {200000}, .initial_std = 0.5f, .initial_mean = 2.0f};
  std::vector<float> values(200000);
  initial_values(parameter, 1, 0, values);
  double mean = 0, square = 0;
  for (const float value : values) mean += value;
  mean /= static_cast<double>(values.size());
  for (const float value : values) square += (value - mean) * (value - mean);
  EXPECT_NEAR(mean, 2.0, 0.01);
  EXPECT_NEAR(std::sqrt(square / static_cast<double>(values.size())), 0.5, 0.01);
}

TEST(InitialValues, differ_by_name_and_seed) {
  std::vector<float> a(16), b(16), c(16);
  initial_values({.name = "a", .shape = {16}, .initial_std = 1}, 0, 0, a);
  initial_values({.name = "b", .shape = {16}, .initial_std = 1}, 0, 0, b);
  initial_values({.name = "a", .shape = {16}, .initial_std = 1}, 1, 0, c);
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
}

TEST(InitialValues, with_no_deviation_are_the_mean) {
  std::vector<float> values(5);
  initial_values({.name = "norm", .shape = {5}, .initial_mean = 1.0f}, 0, 0, values);
  EXPECT_EQ(values, std::vector<float>(5, 1.0f));
}

}  // namespace
}  // namespace headrace
