#include "src/zero/partition.h"

#include <gtest/gtest.h>

#include "headrace/state_hash.h"

namespace headrace {
namespace {

UnitSpec unit_of(std::vector<std::int64_t> sizes) {
  UnitSpec spec{.name = "u", .parameters = {}};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    spec.parameters.push_back({.name = std::to_string(i), .shape = {sizes[i]}, .weight_decay = i % 2 == 0});
  return spec;
}

TEST(UnitLayout, starts_every_parameter_on_64_elements_and_has_no_tail_padding) {
  const UnitLayout layout = make_unit_layout(unit_of({3, 64, 0, 65, 1}));
  EXPECT_EQ(layout.offsets, (std::vector<std::uint64_t>{0, 64, 128, 128, 256}));
  EXPECT_EQ(layout.numel, 257u);
  EXPECT_EQ(layout.parameters_numel, 133u);
}

TEST(ShardRange, covers_every_element_once_on_chunk_borders_for_any_world_size) {
  for (const std::uint64_t numel :
       {0ull, 1ull, 7ull, 4095ull, 4096ull, 4097ull, 1000003ull, (1ull << 31) + 17, 1ull << 40})
    for (int world = 1; world <= 9; ++world) {
      std::uint64_t next = 0;
      for (const Range& shard : shard_ranges(numel, world)) {
        EXPECT_EQ(shard.first, next);
        EXPECT_TRUE(shard.first % norm_chunk_numel == 0 || shard.first == numel);
        EXPECT_LE(shard.numel, numel / static_cast<std::uint64_t>(world) + norm_chunk_numel);
        next = shard.end();
      }
      EXPECT_EQ(next, numel);
    }
}

TEST(CutIntoBlocks, leaves_the_remainder_to_the_last_block) {
  EXPECT_EQ(cut_into_blocks({4096, 10000}, 4096),
            (std::vector<Range>{{4096, 4096}, {8192, 4096}, {12288, 1808}}));
  EXPECT_TRUE(cut_into_blocks({4096, 0}, 4096).empty());
}

// FIELD-CASES A17
TEST(CutIntoBlocks, puts_a_thousand_small_parameters_into_the_blocks_of_the_large_ones) {
  std::vector<std::int64_t> sizes(1000, 16);  // 64 bytes each
  sizes.insert(sizes.end(), 3, (8 << 20) / 4);
  const UnitLayout layout = make_unit_layout(unit_of(sizes));
  const std::uint64_t block_numel = 1 << 18;
  const std::vector<Range> blocks = cut_into_blocks({0, layout.numel}, block_numel);
  EXPECT_EQ(blocks.size(), (layout.numel + block_numel - 1) / block_numel);
  for (std::size_t b = 0; b + 1 < blocks.size(); ++b) EXPECT_EQ(blocks[b].numel, block_numel);
}

TEST(GroupRuns, join_neighbours_of_one_group_across_gaps_and_split_at_borders_of_groups) {
  const UnitLayout layout = make_unit_layout(unit_of({10, 20, 5}));  // decay at 0, not at 64, decay at 128
  const auto runs = group_runs(layout, {0, layout.numel});
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].range, (Range{0, 10}));
  EXPECT_EQ(runs[0].arguments, 1u);
  EXPECT_EQ(runs[1].range, (Range{64, 20}));
  EXPECT_EQ(runs[1].arguments, 0u);
  EXPECT_EQ(runs[2].range, (Range{128, 5}));
}

TEST(GroupRuns, split_at_borders_of_numbered_groups_whether_decayed_or_not) {
  UnitSpec spec = unit_of({64, 64, 64, 64});  // decayed, not, decayed, not
  spec.parameters[0].group = spec.parameters[1].group = spec.parameters[3].group = 2;
  std::vector<std::uint32_t> arguments;
  for (const GroupRun& run : group_runs(make_unit_layout(spec), {0, 256})) arguments.push_back(run.arguments);
  EXPECT_EQ(arguments, (std::vector<std::uint32_t>{5, 4, 1, 4}));
}

TEST(GroupRuns, of_a_block_inside_a_parameter_is_one_run_of_the_block) {
  const UnitLayout layout = make_unit_layout(unit_of({20000}));
  const auto runs = group_runs(layout, {4096, 8192});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].range, (Range{4096, 8192}));
}

TEST(AlignmentGaps, and_parameters_cover_the_flat_vector) {
  const UnitLayout layout = make_unit_layout(unit_of({3, 64, 0, 65, 1}));
  std::uint64_t covered = layout.parameters_numel;
  for (const Range& gap : alignment_gaps(layout)) covered += gap.numel;
  EXPECT_EQ(covered, layout.numel);
}

}  // namespace
}  // namespace headrace
