// How a unit's flat vector is cut: into shards over ranks, shards into optimizer blocks, blocks into runs of
// one parameter group. All borders of shards and blocks lie on norm chunks, so a squared norm does not depend
// on the cut.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/kernels.h"
#include "headrace/units.h"

namespace headrace {

// Elements [first, first + numel) of a flat vector.
struct Range {
  std::uint64_t first = 0, numel = 0;
  std::uint64_t end() const { return first + numel; }
  bool operator==(const Range&) const = default;
};

// Rank's shard of a flat vector of `numel` elements: whole norm chunks, as even as chunks allow; may be
// empty.
Range shard_range(std::uint64_t numel, int rank, int world_size);
std::vector<Range> shard_ranges(std::uint64_t numel, int world_size);

// The range cut into blocks of block_numel (a multiple of norm_chunk_numel); the last one may be shorter.
std::vector<Range> cut_into_blocks(Range range, std::uint64_t block_numel);

// Elements of a block that share hyper-parameters: those of arguments_index (parameter_groups.h). Alignment
// gaps (zero in every state) join the run before them.
struct GroupRun {
  Range range;
  std::uint32_t arguments = 0;
};
std::vector<GroupRun> group_runs(const UnitLayout& layout, Range range);

// Ranges of the flat vector that belong to no parameter.
std::vector<Range> alignment_gaps(const UnitLayout& layout);

// Calls visit(parameter index, first element within the parameter, flat range) for each parameter part inside
// `range`.
template <class Visit>
void for_each_parameter(const UnitLayout& layout, Range range, const Visit& visit) {
  for (std::size_t p = 0; p < layout.offsets.size(); ++p) {
    const std::uint64_t begin = layout.offsets[p], end = begin + layout.spec.parameters[p].numel();
    const std::uint64_t from = begin > range.first ? begin : range.first;
    const std::uint64_t to = end < range.end() ? end : range.end();
    if (from < to) visit(p, from - begin, Range{from, to - from});
  }
}

}  // namespace headrace
