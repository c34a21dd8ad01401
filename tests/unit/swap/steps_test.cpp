// Commit, release, rollback and going back: which steps are whole when.
#include <gmock/gmock.h>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

class SwapStepsTest : public OnBothEngines {};
INSTANTIATE_TEST_SUITE_P(Engines, SwapStepsTest, both_engines, engine_test_name);

TEST_P(SwapStepsTest, both_steps_are_whole_until_the_release_and_one_after_it) {
  const auto store = create(odd_sizes);
  commit_step(*store, 1);
  store->release_superseded();
  commit_step(*store, 2);
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1, 2}));
  store->release_superseded();
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{2}));
}

TEST_P(SwapStepsTest, a_write_before_the_release_is_a_bug_that_is_caught) {
  const auto store = create({4096, 4096});
  commit_step(*store, 1);
  store->release_superseded();
  commit_step(*store, 2);
  EXPECT_THAT(message_of<std::logic_error>([&] { write_block(*store, 0, 1); }),
              HasSubstr("release_superseded"));
  store->release_superseded();
  write_block(*store, 0, 1);
}

TEST_P(SwapStepsTest, a_step_without_writes_can_be_committed) {
  {
    const auto store = create(odd_sizes);
    commit_step(*store, 1);
    store->release_superseded();
    store->commit({2, "skipped"});
  }
  const auto store = open();
  EXPECT_EQ(store->commits().back().metadata, "skipped");
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_P(SwapStepsTest, a_step_is_committed_once_and_in_order) {
  const auto store = create({4096});
  commit_step(*store, 3);
  store->release_superseded();
  EXPECT_THROW(store->commit({3, ""}), std::logic_error);
  EXPECT_THROW(store->commit({2, ""}), std::logic_error);
}

TEST_P(SwapStepsTest, rollback_drops_the_writes_of_the_step_and_the_next_step_may_use_their_extents) {
  const auto store = create(odd_sizes);
  commit_step(*store, 1);
  store->release_superseded();
  write_step(*store, 9);
  store->rollback();
  EXPECT_TRUE(holds_step(*store, 1));
  commit_step(*store, 2);
  EXPECT_TRUE(holds_step(*store, 2));
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1, 2}));
}

TEST_P(SwapStepsTest, rollback_before_the_first_commit_leaves_blocks_unwritten) {
  const auto store = create({4096});
  write_step(*store, 1);
  store->rollback();
  EXPECT_TRUE(store->extents(0).empty());
  commit_step(*store, 1);
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_P(SwapStepsTest, going_back_one_step_is_durable_and_the_step_can_be_done_again) {
  {
    const auto store = create(odd_sizes);
    commit_step(*store, 1);
    store->release_superseded();
    commit_step(*store, 2);
  }
  {
    const auto store = open();
    ASSERT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1, 2}));
    EXPECT_TRUE(holds_step(*store, 2));
    store->position_at(1);
    EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1}));
    EXPECT_TRUE(holds_step(*store, 1));
  }
  {
    const auto store = open();
    EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1}));
    commit_step(*store, 2);
    EXPECT_TRUE(holds_step(*store, 2));
  }
  EXPECT_TRUE(holds_step(*open(), 2));
}

TEST_P(SwapStepsTest, going_back_to_a_step_whose_extents_are_damaged_is_refused_and_changes_nothing) {
  const auto store = create({4096, 5000});
  commit_step(*store, 1);
  const std::uint64_t offset = store->extents(1)[0].offset;
  store->release_superseded();
  commit_step(*store, 2);
  flip_bit(store->extents(1)[0].path, offset + 4999);
  EXPECT_THAT(message_of<CorruptData>([&] { store->position_at(1); }), HasSubstr("block1"));
  EXPECT_TRUE(holds_step(*store, 2));
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1, 2}));
}

TEST_P(SwapStepsTest, going_to_the_current_step_keeps_both_and_to_an_unknown_one_is_a_bug) {
  const auto store = create({4096});
  commit_step(*store, 1);
  store->release_superseded();
  commit_step(*store, 2);
  store->position_at(2);
  EXPECT_EQ(store->commits().size(), 2u);
  EXPECT_THROW(store->position_at(7), std::logic_error);
}

}  // namespace
}  // namespace headrace::testing
