// Bytes per optimizer step on the wire and to NVMe, counted by running the gather policy without memory.
#include "headrace/planner.h"
#include "src/planner/rank_plan.h"
#include "src/zero/parameter_store.h"
#include "src/zero/scratch_store.h"
#include "src/zero/state_store.h"

namespace headrace {
namespace {

// Bytes that all ranks together send to gather, or to reduce-scatter, one unit.
Bytes exchange_bytes(const UnitPlan& unit, const PlanRequest& request) {
  return unit.layout.numel * size_of(request.engine.dtype) * static_cast<Bytes>(request.world_size - 1);
}

// Runs one step's micro-batches through `schedule`; visits every gather.
template <class Visit>
void for_each_gather(const PlanRequest& request, GatherSchedule& schedule, const Visit& visit) {
  for (int micro_batch = 0; micro_batch < request.engine.accumulation; ++micro_batch) {
    schedule.begin_micro_batch();
    for (const HookCall& call : request.hook_calls) {
      if (call.kind == HookCall::Kind::acquire)
        for (const GatherSchedule::Gather& gather : schedule.acquire(call.unit_index)) visit(gather.unit);
      if (call.kind == HookCall::Kind::release) schedule.release(call.unit_index);
    }
  }
  schedule.invalidate();
}

// One optimizer step of micro-batches through `schedule`.
TrafficCounters count_step(const PlanRequest& request, const RankPlan& rank, GatherSchedule& schedule) {
  TrafficCounters traffic;
  for_each_gather(request, schedule, [&](UnitId unit) {
    traffic.all_gather_bytes += exchange_bytes(rank.units[unit], request);
  });
  for (const HookCall& call : request.hook_calls)
    if (call.kind == HookCall::Kind::gradients_ready)
      traffic.reduce_scatter_bytes += exchange_bytes(rank.units[call.unit_index], request) *
                                      static_cast<Bytes>(request.engine.accumulation);
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

namespace {

// With parity a block is written to all paths, and read from as many as hold its data.
Bytes written_for(Bytes bytes, const EngineOptions& options) {
  const Bytes paths = options.swap_parity > 0 ? options.swap_directories.size() : 1;
  return bytes / (paths - options.swap_parity) * paths;
}

// Calls for one unit in a step, the same on every rank.
struct UnitCalls {
  std::uint64_t gathers = 0;    // once the order of acquires is known
  std::uint64_t gradients = 0;  // micro-batches that give it one
};

// Reads and writes of the optimizer's states in one step of one rank, of units that give a gradient.
void add_states(IoCounters& io, const RankPlan& rank, const EngineOptions& options,
                const std::vector<UnitCalls>& calls) {
  if (rank.placement.optimizer.tier != Tier::nvme) return;
  const auto blocks = optimizer_blocks(rank.units, rank.placement, options);
  const std::vector<bool> cached = cached_blocks(blocks, options);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (calls[blocks[b].unit].gradients == 0) continue;  // no update
    const Bytes bytes = state_buffer_bytes(blocks[b].range.numel, options);
    io.written_bytes += written_for(bytes, options);
    if (!cached[b]) io.read_bytes += bytes;
  }
}

// Of low-precision parameters and gradients.
void add_scratch(IoCounters& io, const RankPlan& rank, const EngineOptions& options,
                 const std::vector<UnitCalls>& calls) {
  const auto blocks = optimizer_blocks(rank.units, rank.placement, options);
  const ScratchLayout layout = make_scratch_layout(rank.units, blocks, rank.placement, options);
  const auto bytes_of = [&](ScratchKind kind, std::size_t block) {
    const ScratchLayout::Index index = layout.index[static_cast<std::size_t>(kind)][block];
    return index == ScratchLayout::none ? 0 : scratch_buffer_bytes(layout.blocks[index].bytes, options);
  };
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const UnitCalls& unit = calls[blocks[b].unit];
    const Bytes parameters = bytes_of(ScratchKind::parameters, b);
    io.read_bytes += parameters * unit.gathers;
    if (unit.gradients == 0) continue;
    io.written_bytes += written_for(parameters, options);
    const Bytes earlier = unit.gradients - 1;  // micro-batches before the last
    const Bytes gradients = bytes_of(ScratchKind::gradients, b),
                sums = bytes_of(ScratchKind::accumulators, b);
    io.read_bytes += gradients + sums * earlier;
    io.written_bytes += written_for(gradients, options) + written_for(sums, options) * earlier;
  }
}

std::vector<UnitCalls> calls_of_step(const PlanRequest& request, const RankPlan& rank) {
  std::vector<UnitCalls> calls(rank.units.size());
  for (const HookCall& call : request.hook_calls)
    if (call.kind == HookCall::Kind::gradients_ready)
      calls[call.unit_index].gradients += static_cast<std::uint64_t>(request.engine.accumulation);
  if (rank.placement.parameters.tier != Tier::nvme) return calls;
  GatherSchedule schedule = make_gather_schedule(rank.units, request.engine);
  for_each_gather(request, schedule, [](UnitId) {});  // learns the order
  for_each_gather(request, schedule, [&](UnitId unit) { ++calls[unit].gathers; });
  return calls;
}

}  // namespace

IoCounters plan_io(const PlanRequest& request) {
  IoCounters io;
  const std::vector<int> ranks = planned_ranks(request.world_size);
  std::vector<UnitCalls> calls;
  for (const int r : ranks) {
    const RankPlan rank = plan_rank(request, r);
    if (!rank.placement.uses_nvme()) return io;
    if (calls.empty()) calls = calls_of_step(request, rank);
    add_states(io, rank, request.engine, calls);
    add_scratch(io, rank, request.engine, calls);
  }
  const auto stands_for = static_cast<Bytes>(request.world_size) / ranks.size();  // 1 in a small job
  io.read_bytes *= stands_for;
  io.written_bytes *= stands_for;
  return io;
}

}  // namespace headrace
