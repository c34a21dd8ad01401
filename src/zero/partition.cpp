#include "src/zero/partition.h"

#include <algorithm>

#include "headrace/bytes.h"
#include "headrace/errors.h"
#include "headrace/parameter_groups.h"

namespace headrace {

Range shard_range(std::uint64_t numel, int rank, int world_size) {
  const std::uint64_t chunks = divide_up(numel, norm_chunk_numel);
  const auto border = [&](int r) {
    const auto chunk = chunks * static_cast<std::uint64_t>(r) / static_cast<std::uint64_t>(world_size);
    return std::min(chunk * norm_chunk_numel, numel);
  };
  return {border(rank), border(rank + 1) - border(rank)};
}

std::vector<Range> shard_ranges(std::uint64_t numel, int world_size) {
  std::vector<Range> ranges;
  for (int rank = 0; rank < world_size; ++rank) ranges.push_back(shard_range(numel, rank, world_size));
  return ranges;
}

std::vector<Range> cut_into_blocks(Range range, std::uint64_t block_numel) {
  HEADRACE_CHECK(block_numel > 0 && block_numel % norm_chunk_numel == 0, "block of {} elements", block_numel);
  std::vector<Range> blocks;
  for (std::uint64_t first = range.first; first < range.end(); first += block_numel)
    blocks.push_back({first, std::min(block_numel, range.end() - first)});
  return blocks;
}

std::vector<GroupRun> group_runs(const UnitLayout& layout, Range range) {
  std::vector<GroupRun> runs;
  for_each_parameter(layout, range, [&](std::size_t p, std::uint64_t, Range part) {
    const std::uint32_t arguments = arguments_index(layout.spec.parameters[p]);
    if (!runs.empty() && runs.back().arguments == arguments)
      runs.back().range.numel = part.end() - runs.back().range.first;
    else
      runs.push_back({part, arguments});
  });
  return runs;
}

std::vector<Range> alignment_gaps(const UnitLayout& layout) {
  std::vector<Range> gaps;
  std::uint64_t covered = 0;
  for_each_parameter(layout, {0, layout.numel}, [&](std::size_t, std::uint64_t, Range part) {
    if (part.first > covered) gaps.push_back({covered, part.first - covered});
    covered = part.end();
  });
  return gaps;
}

}  // namespace headrace
