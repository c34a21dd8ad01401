// Updates over threads: all spans of a call lie end to end in one index space, each from a multiple of
// quantised_block_numel on, and the pool takes pieces of that space. A span costs one number beside its
// update.
#include <algorithm>
#include <vector>

#include "cpu_adam/update_piece.h"
#include "cpu_adam/update_pieces.h"
#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "headrace/kernels.h"

namespace headrace {
namespace {

// Long enough that handing it to a thread costs nothing (some 50 us of work), short enough to share a block
// evenly.
constexpr std::uint64_t update_grain_numel = 8 * norm_chunk_numel;
static_assert(update_grain_numel % quantised_block_numel == 0);

// Where each span starts in the index space, and behind them its end.
std::vector<std::uint64_t> starts_of(std::span<const GroupSpan> spans) {
  std::vector<std::uint64_t> starts(spans.size() + 1);
  for (std::size_t s = 0; s < spans.size(); ++s)
    starts[s + 1] = starts[s] + round_up(spans[s].span.numel, quantised_block_numel);
  return starts;
}

std::uint64_t numel_of(std::span<const GroupSpan> spans) {
  std::uint64_t numel = 0;
  for (const GroupSpan& span : spans) numel += span.span.numel;
  return numel;
}

std::vector<UpdateConstants> constants_of(std::span<const OptimizerArguments> groups) {
  std::vector<UpdateConstants> constants;
  constants.reserve(groups.size());
  for (const OptimizerArguments& group : groups) constants.push_back(constants_of(group));
  return constants;
}

void require_meaning(std::span<const GroupSpan> spans, std::span<const OptimizerArguments> groups) {
  for (const auto& [span, group] : spans) {
    if (group >= groups.size())
      throw UsageError(fmt::format("an update names parameter group {}; there are {}", group, groups.size()));
    require_meaning(span, groups[group]);
  }
}

}  // namespace

void for_each_part(std::span<const GroupSpan> spans,
                   const std::function<void(const UpdateSpan& part, std::uint32_t group)>& body) {
  const std::vector<std::uint64_t> starts = starts_of(spans);
  parallel_ranges(starts.back(), update_grain_numel, [&](std::uint64_t begin, std::uint64_t end) {
    // The last span that starts at or before `begin`.
    auto s =
        static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
    for (; s < spans.size() && starts[s] < end; ++s) {
      const auto& [span, group] = spans[s];
      const std::uint64_t first = std::max(begin, starts[s]) - starts[s];
      const std::uint64_t last = std::min(end - starts[s], span.numel);
      if (first < last) body(part_of(span, first, last - first), group);
    }
  });
}

void optimizer_update_parallel(std::span<const GroupSpan> spans, std::span<const OptimizerArguments> groups) {
  const KernelTable& kernels = kernels_of(best_isa());
  const std::vector<UpdateConstants> constants = constants_of(groups);
  require_meaning(spans, groups);
  const Stores stores = stores_for(numel_of(spans));
  for_each_part(spans, [&](const UpdateSpan& part, std::uint32_t group) {
    update_piece(kernels, part, constants[group], stores);
  });
}

void optimizer_update_parallel(const UpdateSpan& span, const OptimizerArguments& arguments) {
  const GroupSpan only{.span = span, .group = 0};
  optimizer_update_parallel({&only, 1}, {&arguments, 1});
}

}  // namespace headrace
