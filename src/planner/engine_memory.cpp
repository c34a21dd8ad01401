// The engine's memory, tag by tag, from the same functions that the engine allocates by.
#include <algorithm>
#include <numeric>

#include "headrace/planner.h"
#include "src/planner/rank_plan.h"
#include "src/zero/gradient_store.h"
#include "src/zero/parameter_store.h"
#include "src/zero/scratch_store.h"
#include "src/zero/updater.h"

namespace headrace {
namespace {

constexpr Bytes device_alignment = 64, page_bytes = 4096;

void add_device(MemoryPlan& plan, MemoryTag tag, Bytes bytes) {
  plan.device[tag] += round_up(bytes, device_alignment);
}
void add_host(MemoryPlan& plan, MemoryTag tag, Bytes bytes) {
  plan.host[tag] += round_up(bytes, page_bytes);
}

void add_parameters(MemoryPlan& plan, const RankPlan& rank, const EngineOptions& options) {
  const Bytes element = size_of(options.dtype);
  for (const UnitPlan& unit : rank.units) {
    if (!unit.gather_parameters)
      add_device(plan, MemoryTag::parameters, unit.layout.numel * element);
    else if (rank.placement.parameters.tier == Tier::device)
      add_device(plan, MemoryTag::parameters, unit.own.numel * element);
    else if (rank.placement.parameters.tier == Tier::host)
      add_host(plan, MemoryTag::parameters, unit.own.numel * element);
  }
  const GatherSchedule slots = make_gather_schedule(rank.units, options);
  for (const Bytes bytes : slots.slot_bytes()) add_device(plan, MemoryTag::prefetch, bytes);
}

void add_gradients(MemoryPlan& plan, const RankPlan& rank, const EngineOptions& options) {
  const Bytes element = size_of(options.dtype);
  const bool on_device = rank.placement.gradients.tier == Tier::device;
  const bool resident = gradient_is_resident(rank.placement, rank.world_size);
  const auto add = on_device ? add_device : add_host;
  for (const UnitPlan& unit : rank.units) {
    if (rank.placement.gradients.tier == Tier::nvme) break;  // add_scratch()
    add(plan, MemoryTag::gradients, (resident ? unit.layout.numel : unit.own.numel) * element);
    if (options.accumulation > 1) add(plan, MemoryTag::gradient_accumulators, unit.own.numel * 4);
  }
  const GatherSchedule slots = make_gradient_slots(rank.units, options, rank.placement, rank.world_size);
  for (const Bytes bytes : slots.slot_bytes()) add_device(plan, MemoryTag::communication_buckets, bytes);
  const BucketLayout buckets = make_bucket_layout(rank.units, options, rank.placement, rank.world_size);
  add_device(plan, MemoryTag::communication_buckets, buckets.total_bytes());
  if (!on_device && options.accumulation > 1) add_host(plan, MemoryTag::staging, buckets.numel * 4);
  const Bytes partials = norm_partials_bytes(rank.units);
  add_host(plan, MemoryTag::staging, partials);
  if (norm_is_taken_on_device(options, rank.placement)) add_device(plan, MemoryTag::workspace, partials);
  const Bytes trace = overflow_trace_bytes(rank.units.size(), options);
  add_host(plan, MemoryTag::staging, trace);
  add_device(plan, MemoryTag::workspace, trace);
}

void add_path_bytes(MemoryPlan& plan, const std::vector<Bytes>& bytes) {
  plan.nvme_path_bytes.resize(std::max(plan.nvme_path_bytes.size(), bytes.size()));
  for (std::size_t path = 0; path < bytes.size(); ++path) plan.nvme_path_bytes[path] += bytes[path];
}

// What lives in the scratch store, and the buffers on its way there.
void add_scratch(MemoryPlan& plan, const RankPlan& rank, const EngineOptions& options) {
  const auto blocks = optimizer_blocks(rank.units, rank.placement, options);
  const ScratchLayout layout = make_scratch_layout(rank.units, blocks, rank.placement, options);
  constexpr MemoryTag tags[scratch_kinds] = {MemoryTag::parameters, MemoryTag::gradients,
                                             MemoryTag::gradient_accumulators};
  const std::uint32_t buffers[scratch_kinds] = {options.parameter_buffers, options.gradient_buffers,
                                                options.gradient_buffers};
  for (std::size_t kind = 0; kind < scratch_kinds; ++kind) {
    plan.nvme[tags[kind]] += layout.disk_bytes[kind];
    add_host(plan, MemoryTag::staging, layout.buffer_bytes[kind] * buffers[kind]);
  }
  if (layout.blocks.empty()) return;
  add_path_bytes(plan, SwapStore::disk_bytes(layout.blocks, scratch_store_options(options)));
  add_host(plan, MemoryTag::staging, SwapStore::parity_bytes(layout.blocks, scratch_store_options(options)));
}

void add_swap_store(MemoryPlan& plan, const std::vector<SwapBlock>& blocks, const EngineOptions& options) {
  const SwapStoreOptions store = swap_store_options(options);
  const std::vector<Bytes> path_bytes = SwapStore::disk_bytes(blocks, store);
  add_path_bytes(plan, path_bytes);
  for (const Bytes bytes : path_bytes) plan.nvme[MemoryTag::optimizer] += bytes;
  add_host(plan, MemoryTag::staging, SwapStore::parity_bytes(blocks, store));
}

void add_optimizer(MemoryPlan& plan, const RankPlan& rank, const EngineOptions& options) {
  const auto blocks = optimizer_blocks(rank.units, rank.placement, options);
  Bytes total = 0;
  const StateFormat format = options.state_format();
  for (const OptimizerBlock& block : blocks) total += resident_state_bytes(block.range.numel, format);
  switch (rank.placement.optimizer.tier) {
    case Tier::device:
      add_device(plan, MemoryTag::optimizer, total);
      break;
    case Tier::host:
      add_host(plan, MemoryTag::optimizer, total);
      break;
    case Tier::nvme:
      add_swap_store(plan, swap_blocks(rank.units, blocks, format), options);
      add_host(plan, MemoryTag::staging,
               state_buffer_bytes(block_numel(options), options) * options.swap_buffers);
      add_host(plan, MemoryTag::optimizer, bytes_of_chosen(blocks, cached_blocks(blocks, options), options));
      break;
  }
  add_host(plan, MemoryTag::staging, snapshot_memory_bytes(blocks, options));
  const UpdateStaging staging = plan_staging(rank.units, blocks, options, rank.placement);
  if (staging.moves()) plan.update_region_blocks = staging.region_blocks;
  add_host(plan, MemoryTag::staging, staging.visit_bytes);
  if (staging.on_device)
    add_device(plan, MemoryTag::staging, staging.total_bytes());
  else
    add_host(plan, MemoryTag::staging, staging.total_bytes());
}

void keep_larger(TagBytes& largest, const TagBytes& other) {
  for (std::size_t t = 0; t < memory_tag_count; ++t)
    largest.bytes[t] = std::max(largest.bytes[t], other.bytes[t]);
}

}  // namespace

std::vector<int> planned_ranks(int world_size) {
  constexpr int every_rank_up_to = 64;
  if (world_size > every_rank_up_to) return {0, world_size / 2, world_size - 1};
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

RankPlan plan_rank(const PlanRequest& request, int rank) {
  RankPlan plan{
      .world_size = request.world_size, .placement = resolve_placement(request.engine), .units = {}};
  for (const UnitSpec& spec : request.units)
    plan.units.push_back(
        plan_unit(make_unit_layout(spec), plan.placement, request.engine, rank, request.world_size));
  return plan;
}

// With regions of as many blocks as the request says, fitting or not.
static MemoryPlan plan_as_asked(const PlanRequest& request) {
  MemoryPlan largest{.device = {},
                     .host = {},
                     .nvme = {},
                     .device_limit = request.device_limit,
                     .host_limit = request.host_limit,
                     .machine_limit = request.machine_limit,
                     .world_size = request.world_size,
                     .stage = request.engine.stage,
                     .device_is_host = request.device_is_host};
  for (const int r : planned_ranks(request.world_size)) {
    const RankPlan rank = plan_rank(request, r);
    MemoryPlan plan;
    plan.device = request.model_memory;
    add_parameters(plan, rank, request.engine);
    add_gradients(plan, rank, request.engine);
    add_optimizer(plan, rank, request.engine);
    add_scratch(plan, rank, request.engine);
    add_host(plan, MemoryTag::staging, request.checkpoint_bytes);
    keep_larger(largest.device, plan.device);
    keep_larger(largest.host, plan.host);
    keep_larger(largest.nvme, plan.nvme);
    largest.update_region_blocks = std::max(largest.update_region_blocks, plan.update_region_blocks);
    largest.nvme_path_bytes.resize(std::max(largest.nvme_path_bytes.size(), plan.nvme_path_bytes.size()));
    for (std::size_t path = 0; path < plan.nvme_path_bytes.size(); ++path)
      largest.nvme_path_bytes[path] = std::max(largest.nvme_path_bytes[path], plan.nvme_path_bytes[path]);
  }
  return largest;
}

MemoryPlan plan_memory(const PlanRequest& request) {
  MemoryPlan plan = plan_as_asked(request);
  std::uint32_t too_many = plan.update_region_blocks;
  if (plan.host_fits() || too_many == 1) return plan;
  auto with_regions_of = [smaller = request](std::uint32_t blocks) mutable {
    smaller.engine.update_region_blocks = blocks;
    return plan_as_asked(smaller);
  };
  plan = with_regions_of(1);
  if (!plan.host_fits()) return plan;
  while (too_many - plan.update_region_blocks > 1) {
    const std::uint32_t blocks = std::midpoint(plan.update_region_blocks, too_many);
    if (MemoryPlan larger = with_regions_of(blocks); larger.host_fits())
      plan = std::move(larger);
    else
      too_many = blocks;
  }
  return plan;
}

bool MemoryPlan::host_fits() const {
  return (host_limit == 0 || host.total() <= host_limit) &&
         (machine_limit == 0 || machine_bytes() <= machine_limit);
}

bool MemoryPlan::fits() const {
  return (device_limit == 0 || device.total() <= device_limit) && host_fits();
}

}  // namespace headrace
