#include "headrace/statistics.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(Median, is_the_middle_or_the_mean_of_the_two_in_the_middle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({5}), 5);
  EXPECT_EQ(median({}), 0);
}

TEST(MedianDeviation, is_not_moved_by_one_wild_value) {
  EXPECT_EQ(median_deviation({5}), 0);
  EXPECT_EQ(median_deviation({1, 2, 3, 4, 5}), 1);
  EXPECT_EQ(median_deviation({1, 2, 3, 4, 1000}), 1);
}

}  // namespace
}  // namespace headrace
