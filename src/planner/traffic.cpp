// Bytes per optimizer step on the wire and to NVMe, counted by running the gather policy without memory.
#include "headrace/planner.h"
#include "src/planner/rank_plan.h"
#include "src/zero/parameter_store.h"
#include "src/zero/state_store.h"

namespace headrace {
namespace {

// Bytes that all ranks together send to gather, or to reduce-scatter, one unit.
Bytes exchange_bytes(const UnitPlan& unit, const PlanRequest& request) {
  return unit.layout.numel * size_of(request.engine.dtype) * static_cast<Bytes>(request.world_size - 1);
}

// One optimizer step of micro-batches through `schedule`.
TrafficCounters count_step(const PlanRequest& request, const RankPlan& rank, GatherSchedule& schedule) {
  TrafficCounters traffic;
  for (int micro_batch = 0; micro_batch < request.engine.accumulation; ++micro_batch) {
    schedule.begin_micro_batch();
    for (const HookCall& call : request.hook_calls) {
      const UnitPlan& unit = rank.units[call.unit_index];
      if (call.kind == HookCall::Kind::acquire)
        for (const GatherSchedule::Gather& gather : schedule.acquire(call.unit_index))
          traffic.all_gather_bytes += exchange_bytes(rank.units[gather.unit], request);
      if (call.kind == HookCall::Kind::release) schedule.release(call.unit_index);
      if (call.kind == HookCall::Kind::gradients_ready)
        traffic.reduce_scatter_bytes += exchange_bytes(unit, request);
    }
  }
  schedule.invalidate();
  // At the boundary: stage 0 gathers the gradient, above it the updated parameters of resident units.
  for (const UnitPlan& unit : rank.units)
    if (!rank.placement.optimizer.sharded || !unit.gather_parameters)
      traffic.all_gather_bytes += exchange_bytes(unit, request);
  return traffic;
}

}  // namespace

TrafficCounters plan_traffic(const PlanRequest& request, bool first_step) {
  const RankPlan rank = plan_rank(request, 0);
  GatherSchedule schedule = make_gather_schedule(rank.units, request.engine);
  const TrafficCounters first = count_step(request, rank, schedule);
  return first_step ? first : count_step(request, rank, schedule);
}

IoCounters plan_io(const PlanRequest& request) {
  IoCounters io;
  if (request.engine.optimizer_tier != Tier::nvme) return io;
  // With parity a block is written to all paths, and read from as many as hold its data.
  const Bytes parity = request.engine.swap_parity;
  const Bytes all_paths = parity > 0 ? request.engine.swap_directories.size() : 1;
  const Bytes data_paths = all_paths - parity;
  const std::vector<int> ranks = planned_ranks(request.world_size);
  for (const int r : ranks) {
    const RankPlan rank = plan_rank(request, r);
    const auto blocks = optimizer_blocks(rank.units, rank.placement, request.engine);
    const std::vector<bool> cached = cached_blocks(blocks, request.engine);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const Bytes bytes = state_buffer_bytes(blocks[b].range.numel, request.engine);
      io.written_bytes += bytes / data_paths * all_paths;
      if (!cached[b]) io.read_bytes += bytes;
    }
  }
  const auto stands_for = static_cast<Bytes>(request.world_size) / ranks.size();  // 1 in a small job
  io.read_bytes *= stands_for;
  io.written_bytes *= stands_for;
  return io;
}

}  // namespace headrace
