#include "src/zero/update_staging.h"

#include <algorithm>

namespace headrace {
namespace {

// Elements of a region whose gradients or parameters move: 48 MiB of fp32 Adam's states, so that each of
// several nodes has a run of huge pages, and 16 MiB of buffers for each kind of 16 bits.
constexpr std::uint64_t moved_region_numel = std::uint64_t{1} << 22;
// Regions that a small update is cut into all the same: the first one's gradients and the last one's
// parameters move while nothing is computed.
constexpr std::uint64_t least_moved_regions = 4;

bool moves_parameters(const std::vector<UnitPlan>& units, const ResolvedPlacement& placement,
                      bool update_on_device) {
  return std::any_of(units.begin(), units.end(), [&](const UnitPlan& unit) {
    const bool on_device = !unit.gather_parameters || placement.parameters.tier == Tier::device;
    return unit.layout.numel > 0 && on_device != update_on_device;
  });
}

std::uint64_t region_blocks(const UpdateStaging& staging, std::uint64_t blocks, const EngineOptions& options,
                            const ResolvedPlacement& placement) {
  if (staging.on_device || placement.uses_nvme() || blocks == 0) return 1;
  if (!staging.moves()) return blocks;
  const std::uint64_t enough =
      std::min(divide_up(blocks, least_moved_regions), moved_region_numel / block_numel(options));
  return std::clamp<std::uint64_t>(enough, 1, std::max(options.update_region_blocks, 1u));
}

}  // namespace

UpdateStaging plan_staging(const std::vector<UnitPlan>& units, std::span<const OptimizerBlock> blocks,
                           const EngineOptions& options, const ResolvedPlacement& placement) {
  UpdateStaging staging;
  staging.on_device = placement.optimizer.tier == Tier::device;
  staging.move_gradient = (placement.gradients.tier == Tier::device) != staging.on_device;
  staging.move_parameters = moves_parameters(units, placement, staging.on_device);
  std::uint64_t largest = 0;
  for (const OptimizerBlock& block : blocks) largest = std::max(largest, block.range.numel);
  staging.region_blocks =
      static_cast<std::uint32_t>(region_blocks(staging, blocks.size(), options, placement));
  staging.buffers = 2 * staging.region_blocks;
  staging.buffer_bytes = round_up(largest * size_of(options.dtype), 64);
  if (staging.on_device) staging.visit_bytes = state_bytes(kept_format(options), largest);
  return staging;
}

}  // namespace headrace
