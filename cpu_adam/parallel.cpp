// Updates over threads: all spans of a call lie end to end in one index space, each from a multiple of
// quantised_block_numel on, and the pool takes pieces of that space. A span costs one number beside its
// update.
#include <algorithm>
#include <vector>

#include "cpu_adam/kernel_table.h"
#include "cpu_adam/parallel_parts.h"
#include "cpu_adam/update_ceiling.h"
#include "cpu_adam/update_piece.h"
#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "headrace/kernels.h"
#include "headrace/numa_memory.h"

namespace headrace {
namespace {

// Long enough that handing it to a thread costs nothing (some 10 us of work). Of less than that for every
// thread, one piece each: a piece that another thread had in its cache the last time costs more than waiting.
std::uint64_t grain_of(std::uint64_t numel, int threads) {
  constexpr std::uint64_t least = 2 * norm_chunk_numel, most = 8 * norm_chunk_numel;
  const std::uint64_t share = divide_up(numel, static_cast<std::uint64_t>(threads));
  return std::clamp(round_up(share, quantised_block_numel), least, most);
}

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

// Of what lies together: the states are most of the traffic.
const void* state_address(const UpdateSpan& span) {
  return span.state.moments[0].values != nullptr ? span.state.moments[0].values : span.state.master;
}

}  // namespace

void for_each_part(std::span<const GroupSpan> spans,
                   const std::function<void(const UpdateSpan& part, std::uint32_t group)>& body) {
  const std::vector<std::uint64_t> starts = starts_of(spans);
  // The last span that starts at or before `begin`.
  const auto span_at = [&](std::uint64_t begin) {
    const auto after = std::upper_bound(starts.begin(), starts.end(), begin);
    return static_cast<std::size_t>(after - starts.begin()) - 1;
  };
  const auto home = [&](std::uint64_t begin) {
    const std::size_t s = span_at(begin);
    return node_of(state_address(part_of(spans[s].span, begin - starts[s], 0)));
  };
  parallel_ranges(starts.back(), grain_of(starts.back(), cpu_threads()), home,
                  [&](std::uint64_t begin, std::uint64_t end) {
                    for (std::size_t s = span_at(begin); s < spans.size() && starts[s] < end; ++s) {
                      const auto& [span, group] = spans[s];
                      const std::uint64_t first = std::max(begin, starts[s]) - starts[s];
                      const std::uint64_t last = std::min(end - starts[s], span.numel);
                      if (first < last) body(part_of(span, first, last - first), group);
                    }
                  });
}

void update_parallel(const KernelTable& kernels, std::span<const GroupSpan> spans,
                     std::span<const OptimizerArguments> groups, std::uint64_t update_numel) {
  const std::vector<UpdateConstants> constants = constants_of(groups);
  require_meaning(spans, groups);
  const Stores stores = stores_for(std::max(update_numel, numel_of(spans)));
  for_each_part(spans, [&](const UpdateSpan& part, std::uint32_t group) {
    update_piece(kernels, part, constants[group], stores);
  });
}

void optimizer_update_parallel(std::span<const GroupSpan> spans, std::span<const OptimizerArguments> groups,
                               std::uint64_t update_numel) {
  update_parallel(kernels_of(best_isa()), spans, groups, update_numel);
}

void update_ceiling_parallel(std::span<const GroupSpan> spans, Stores stores) {
  const KernelTable& kernels = kernels_of(best_isa());
  for (const GroupSpan& span : spans)
    HEADRACE_CHECK(span.span.numel % tile_numel == 0, "a ceiling of {} elements", span.span.numel);
  for_each_part(spans, [&](const UpdateSpan& part, std::uint32_t) { kernels.ceiling(part, stores); });
}

void optimizer_update_parallel(const UpdateSpan& span, const OptimizerArguments& arguments) {
  const GroupSpan only{.span = span, .group = 0};
  optimizer_update_parallel({&only, 1}, {&arguments, 1});
}

}  // namespace headrace
