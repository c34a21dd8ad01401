#include "src/zero/read_ahead.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

using Blocks = std::vector<ReadAhead::Block>;

Blocks on_its_way(const ReadAhead& policy) {
  return {policy.on_its_way().begin(), policy.on_its_way().end()};
}

TEST(ReadAhead, asks_for_no_more_than_its_depth) {
  ReadAhead policy(3);
  const auto change = policy.expect(Blocks{5, 6, 7, 8, 9});
  EXPECT_EQ(change.keep, 0u);
  EXPECT_EQ(change.start, (Blocks{5, 6, 7}));
}

TEST(ReadAhead, asks_for_one_more_for_each_that_is_taken) {
  ReadAhead policy(3);
  policy.expect(Blocks{0, 1, 2, 3, 4});
  ASSERT_TRUE(policy.take(0));
  const auto change = policy.expect(Blocks{1, 2, 3, 4});
  EXPECT_EQ(change.keep, 2u);
  EXPECT_EQ(change.start, Blocks{3});
}

TEST(ReadAhead, keeps_what_was_expected_rightly_and_drops_what_comes_after) {
  ReadAhead policy(4);
  policy.expect(Blocks{0, 1, 2, 3});
  const auto change = policy.expect(Blocks{0, 1, 7, 2});
  EXPECT_EQ(change.keep, 2u);
  EXPECT_EQ(change.start, (Blocks{7, 2}));
  EXPECT_EQ(on_its_way(policy), (Blocks{0, 1, 7, 2}));
}

TEST(ReadAhead, of_nothing_drops_everything) {
  ReadAhead policy(2);
  policy.expect(Blocks{4, 5});
  const auto change = policy.expect({});
  EXPECT_EQ(change.keep, 0u);
  EXPECT_TRUE(change.start.empty());
  EXPECT_TRUE(policy.on_its_way().empty());
}

TEST(ReadAhead, gives_a_block_further_on_and_passes_over_those_before_it) {
  ReadAhead policy(4);
  policy.expect(Blocks{0, 1, 2, 3});
  const auto taken = policy.take(2);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->passed_over, 2u);
  EXPECT_EQ(on_its_way(policy), Blocks{3});
}

TEST(ReadAhead, that_missed_leaves_nothing_on_its_way) {
  ReadAhead policy(4);
  policy.expect(Blocks{0, 1});
  EXPECT_FALSE(policy.take(9));
  EXPECT_TRUE(policy.on_its_way().empty());
}

TEST(ReadAhead, reads_a_block_twice_that_is_used_twice) {
  ReadAhead policy(4);
  policy.expect(Blocks{3, 4, 3});
  ASSERT_TRUE(policy.take(3));
  ASSERT_TRUE(policy.take(4));
  EXPECT_EQ(on_its_way(policy), Blocks{3});
}

}  // namespace
}  // namespace headrace
