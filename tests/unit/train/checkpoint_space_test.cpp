#include "src/train/checkpoint_space.h"

#include <gtest/gtest.h>

namespace headrace::testing {
namespace {

TEST(SpaceForCheckpoints, of_all_that_are_kept_grows_with_each_save) {
  const SavePlan plan{.saves = 5, .keep_last = 0, .each = 10, .existing = {7, 7}};
  EXPECT_EQ(most_needed(plan, 1), 10u);
  EXPECT_EQ(most_needed(plan, 5), 50u);
}

TEST(SpaceForCheckpoints, a_new_one_is_whole_before_an_old_one_goes) {
  const SavePlan plan{.saves = 5, .keep_last = 2, .each = 10, .existing = {}};
  EXPECT_EQ(most_needed(plan, 1), 10u);
  EXPECT_EQ(most_needed(plan, 2), 20u);
  EXPECT_EQ(most_needed(plan, 3), 30u);
  EXPECT_EQ(most_needed(plan, 5), 30u);
  EXPECT_EQ(most_needed({.saves = 5, .keep_last = 1, .each = 10, .existing = {}}, 5), 20u);
}

// Before any save there are three old ones, which go one by one, the oldest first.
TEST(SpaceForCheckpoints, what_an_earlier_run_left_is_given_back_as_it_is_removed) {
  const SavePlan plan{.saves = 9, .keep_last = 2, .each = 10, .existing = {4, 10, 10}};
  EXPECT_EQ(most_needed(plan, 1), 10u);  // beside all three
  EXPECT_EQ(most_needed(plan, 2), 10u);  // the second beside one old one: the first left two old ones less
  EXPECT_EQ(most_needed({.saves = 9, .keep_last = 2, .each = 10, .existing = {10, 10}}, 9), 10u);
  EXPECT_EQ(most_needed({.saves = 9, .keep_last = 2, .each = 10, .existing = {1, 1}}, 9), 28u);
}

TEST(SpaceForCheckpoints, of_counts_beyond_any_disk_does_not_wrap) {
  constexpr std::uint64_t huge = ~std::uint64_t{0};
  EXPECT_EQ(most_needed({.saves = huge, .keep_last = 0, .each = 10, .existing = {}}, huge), ~Bytes{0});
  EXPECT_EQ(most_needed({.saves = huge, .keep_last = huge, .each = 10, .existing = {1}}, huge), ~Bytes{0});
  EXPECT_EQ(most_needed({.saves = 3, .keep_last = huge, .each = 10, .existing = {1}}, 3), 30u);
}

TEST(SpaceForCheckpoints, of_a_run_without_a_save_is_none) {
  EXPECT_EQ(most_needed({.saves = 0, .keep_last = 2, .each = 10, .existing = {10}}, 0), 0u);
}

}  // namespace
}  // namespace headrace::testing
