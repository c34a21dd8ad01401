#include "src/zero/update_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace headrace {
namespace {

UpdatePlanOptions nvme(std::uint32_t blocks, std::uint32_t buffers, bool reversed = false) {
  return {.blocks = blocks,
          .states_on_nvme = true,
          .move_gradient = true,
          .move_parameters = true,
          .buffers = buffers,
          .reversed = reversed};
}

std::map<UpdateAction, std::vector<std::size_t>> positions_of(const std::vector<UpdateStep>& plan,
                                                              std::uint32_t block) {
  std::map<UpdateAction, std::vector<std::size_t>> positions;
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (plan[i].block == block) positions[plan[i].action].push_back(i);
  return positions;
}

TEST(UpdatePlan, does_everything_once_for_each_block_and_in_order) {
  for (const std::uint32_t blocks : {0u, 1u, 2u, 3u, 4u, 7u, 50u})
    for (const std::uint32_t buffers : {3u, 4u, 8u, 64u})
      for (const bool reversed : {false, true}) {
        const auto plan = plan_update(nvme(blocks, buffers, reversed));
        for (std::uint32_t b = 0; b < blocks; ++b) {
          auto at = positions_of(plan, b);
          ASSERT_EQ(at.size(), 7u);
          for (const auto& [action, where] : at)
            ASSERT_EQ(where.size(), 1u) << name_of(action) << " block " << b;
          EXPECT_LT(at[UpdateAction::read_state][0], at[UpdateAction::join][0]);
          EXPECT_LT(at[UpdateAction::fetch_gradient][0], at[UpdateAction::join][0]);
          EXPECT_LT(at[UpdateAction::join][0], at[UpdateAction::update][0]);
          EXPECT_LT(at[UpdateAction::update][0], at[UpdateAction::write_state][0]);
          EXPECT_LT(at[UpdateAction::update][0], at[UpdateAction::store_parameters][0]);
          EXPECT_LT(at[UpdateAction::write_state][0], at[UpdateAction::reclaim_state][0]);
        }
      }
}

TEST(UpdatePlan, never_holds_more_state_buffers_than_it_has_and_uses_them_all) {
  for (const std::uint32_t buffers : {3u, 4u, 8u}) {
    std::set<std::uint32_t> held;
    std::size_t peak = 0;
    for (const UpdateStep& step : plan_update(nvme(40, buffers))) {
      if (step.action == UpdateAction::read_state) held.insert(step.block);
      if (step.action == UpdateAction::reclaim_state) held.erase(step.block);
      peak = std::max(peak, held.size());
      ASSERT_LE(held.size(), buffers);
    }
    EXPECT_EQ(peak, buffers);
    EXPECT_TRUE(held.empty());
  }
}

// At least three deep: while a block is updated the next is being read and the one before is being written.
TEST(UpdatePlan, reads_ahead_and_writes_behind_at_the_same_time) {
  const auto plan = plan_update(nvme(20, 3));
  std::set<std::uint32_t> reading, writing;
  int overlapped = 0;
  for (const UpdateStep& step : plan) {
    if (step.action == UpdateAction::read_state) reading.insert(step.block);
    if (step.action == UpdateAction::update) {
      reading.erase(step.block);
      if (!reading.empty() && !writing.empty()) ++overlapped;
    }
    if (step.action == UpdateAction::write_state) writing.insert(step.block);
    if (step.action == UpdateAction::reclaim_state) writing.erase(step.block);
  }
  EXPECT_GE(overlapped, 17);
}

TEST(UpdatePlan, reversed_begins_with_the_blocks_that_the_plan_before_ended_with) {
  const auto forward = plan_update(nvme(9, 3)), backward = plan_update(nvme(9, 3, true));
  EXPECT_EQ(backward.front().block, 8u);
  EXPECT_EQ(forward.front().block, 0u);
}

TEST(UpdatePlan, of_resident_states_is_updates_only) {
  EXPECT_EQ(to_string(plan_update({.blocks = 2})), "join 0\nupdate 0\njoin 1\nupdate 1\n");
  EXPECT_EQ(to_string(plan_update({.blocks = 3, .region_blocks = 3})), "join 0\njoin 1\njoin 2\nupdate 2\n");
}

// The blocks that are updated together, region by region.
std::vector<std::set<std::uint32_t>> regions_of(const std::vector<UpdateStep>& plan) {
  std::vector<std::set<std::uint32_t>> regions;
  std::set<std::uint32_t> joined;
  for (const UpdateStep& step : plan) {
    if (step.action == UpdateAction::join) joined.insert(step.block);
    if (step.action == UpdateAction::update) regions.push_back(std::exchange(joined, {}));
  }
  EXPECT_TRUE(joined.empty());
  return regions;
}

TEST(UpdatePlan, regions_are_the_same_neighbours_in_either_direction) {
  auto forward = regions_of(plan_update({.blocks = 10, .region_blocks = 4}));
  EXPECT_EQ(forward, (std::vector<std::set<std::uint32_t>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}));
  std::reverse(forward.begin(), forward.end());
  EXPECT_EQ(regions_of(plan_update({.blocks = 10, .region_blocks = 4, .reversed = true})), forward);
}

// A slot by position modulo two regions: its gradient is used before the next one comes, and the parameters
// of a region are on their way before those after the next are written.
TEST(UpdatePlan, two_regions_of_slots_hold_what_moves_and_the_next_gradients_come_during_an_update) {
  for (const std::uint32_t region : {1u, 3u, 4u})
    for (const bool reversed : {false, true}) {
      std::map<std::uint32_t, std::uint32_t> gradients, parameters;  // slot -> block
      int early = 0;
      for (const UpdateStep& step : plan_update({.blocks = 22,
                                    .move_gradient = true,
                                    .move_parameters = true,
                                    .region_blocks = region,
                                    .reversed = reversed})) {
        const std::uint32_t slot = step.block % (2 * region);
        if (step.action == UpdateAction::fetch_gradient) {
          ASSERT_TRUE(gradients.emplace(slot, step.block).second) << "block " << step.block;
        }
        if (step.action == UpdateAction::join) {
          ASSERT_EQ(gradients.at(slot), step.block);
          ASSERT_TRUE(parameters.emplace(slot, step.block).second);
        }
        if (step.action == UpdateAction::update) {
          if (gradients.size() > parameters.size()) ++early;
        }
        if (step.action == UpdateAction::store_parameters) {
          ASSERT_EQ(parameters.at(slot), step.block);
          parameters.erase(slot), gradients.erase(slot);
        }
      }
      EXPECT_TRUE(parameters.empty() && gradients.empty());
      EXPECT_EQ(early, static_cast<int>((22 + region - 1) / region) - 1);
    }
}

}  // namespace
}  // namespace headrace
