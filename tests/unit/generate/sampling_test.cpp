// Which token a number between 0 and 1 falls on.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "headrace/errors.h"
#include "headrace/generate.h"

namespace headrace {
namespace {

// Probabilities 0.1, 0.4, 0.2, 0.3.
const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

// How often each id is drawn, in shares, by numbers evenly spaced.
std::map<std::int32_t, double> shares_of(const SamplingOptions& sampling,
                                         const std::vector<float>& of = logits) {
  constexpr int draws = 10000;
  std::map<std::int32_t, double> shares;
  for (int i = 0; i < draws; ++i) shares[draw_token(of, sampling, (i + 0.5) / draws)] += 1.0 / draws;
  return shares;
}

void expect_shares(const std::map<std::int32_t, double>& actual,
                   const std::map<std::int32_t, double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [id, share] : expected) EXPECT_NEAR(actual.at(id), share, 2e-4) << id;
}

TEST(Sampling, temperature_1_draws_by_the_models_probabilities) {
  expect_shares(shares_of({}), {{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}});
}

TEST(Sampling, temperature_0_takes_the_likeliest_and_of_equals_the_lowest_id) {
  expect_shares(shares_of({.temperature = 0}), {{1, 1}});
  expect_shares(shares_of({.temperature = 0}, {0, 2, 1, 2}), {{1, 1}});
}

TEST(Sampling, a_temperature_is_a_power_of_the_probabilities) {
  const double total = 0.01 + 0.16 + 0.04 + 0.09;
  expect_shares(shares_of({.temperature = 0.5}),
                {{0, 0.01 / total}, {1, 0.16 / total}, {2, 0.04 / total}, {3, 0.09 / total}});
}

TEST(Sampling, top_k_leaves_the_likeliest_and_their_proportions) {
  expect_shares(shares_of({.top_k = 2}), {{1, 4.0 / 7}, {3, 3.0 / 7}});
  expect_shares(shares_of({.top_k = 1}), {{1, 1}});
  expect_shares(shares_of({.top_k = 9}), {{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}});
}

TEST(Sampling, top_p_leaves_the_fewest_that_reach_it) {
  expect_shares(shares_of({.top_p = 0.39}), {{1, 1}});
  expect_shares(shares_of({.top_p = 0.65}), {{1, 4.0 / 7}, {3, 3.0 / 7}});
  expect_shares(shares_of({.top_p = 0.75}), {{1, 4.0 / 9}, {2, 2.0 / 9}, {3, 3.0 / 9}});
  expect_shares(shares_of({.top_p = 1e-9}), {{1, 1}});
}

TEST(Sampling, top_p_is_of_what_top_k_and_the_temperature_leave) {
  // Of the two likeliest, 4/7 and 3/7: the first alone reaches half.
  expect_shares(shares_of({.top_k = 2, .top_p = 0.5}), {{1, 1}});
  // Squared, 0.16 of 0.3 is more than half.
  expect_shares(shares_of({.temperature = 0.5, .top_p = 0.5}), {{1, 1}});
}

TEST(Sampling, an_impossible_token_is_never_drawn) {
  const float impossible = -std::numeric_limits<float>::infinity();
  expect_shares(shares_of({}, {impossible, 0, impossible, 0}), {{1, 0.5}, {3, 0.5}});
  expect_shares(shares_of({.top_p = 0.999}, {impossible, 0, impossible, 0}), {{1, 0.5}, {3, 0.5}});
}

TEST(Sampling, logits_that_are_no_numbers_are_an_error_and_no_token) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinite = std::numeric_limits<float>::infinity();
  for (const double temperature : {0.0, 1.0})
    for (const std::vector<float>& broken :
         {std::vector<float>{0, nan, 1}, {nan, 0, 1}, {0, infinite, 1}, {-infinite, -infinite}})
      EXPECT_THROW(draw_token(broken, {.temperature = temperature}, 0.5), Error);
}

TEST(Sampling, draws_depend_on_seed_sequence_and_position_and_are_spread_evenly) {
  EXPECT_EQ(draw_uniform(1, 2, 3), draw_uniform(1, 2, 3));
  EXPECT_NE(draw_uniform(1, 2, 3), draw_uniform(2, 2, 3));
  EXPECT_NE(draw_uniform(1, 2, 3), draw_uniform(1, 3, 3));
  EXPECT_NE(draw_uniform(1, 2, 3), draw_uniform(1, 3, 2));
  EXPECT_NE(draw_uniform(0, 1, 0), draw_uniform(0, 0, 1));
  double sum = 0;
  for (int position = 0; position < 1000; ++position) {
    const double x = draw_uniform(7, 0, position);
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
  }
  EXPECT_NEAR(sum / 1000, 0.5, 0.03);
}

}  // namespace
}  // namespace headrace
