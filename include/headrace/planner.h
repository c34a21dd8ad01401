// Does it fit, and what does it cost: the memory ledger and the bytes on the wire of a run, computed without
// allocating anything. `headrace plan` prints it; `train` refuses with it. It knows units and placements, no
// models.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/engine.h"
#include "headrace/memory.h"
#include "headrace/units.h"

namespace headrace {

struct PlanRequest {
  std::vector<UnitSpec> units;
  TagBytes model_memory;  // device bytes of activations and workspace (measure_model_memory)
  std::optional<TagBytes>
      model_memory_with_recompute;   // the same with activation checkpointing, where it is off
  std::vector<HookCall> hook_calls;  // of one micro-batch (record_hook_calls)
  EngineOptions engine;
  int world_size = 1;
  Bytes checkpoint_bytes = 0;              // host memory of saving and loading (checkpoint.h)
  Bytes device_limit = 0, host_limit = 0;  // per rank; 0: none
  // What this rank may take of its machine's memory, limits given or not; 0: not asked.
  Bytes machine_limit = 0;
  bool device_is_host = true;   // the CPU device's memory is the machine's
  bool cache_is_spare = false;  // engine.swap_cache_bytes was not asked for: advice may give it up
};

struct MemoryPlan {
  TagBytes device, host, nvme;  // of the rank that needs most
  std::vector<Bytes>
      nvme_path_bytes{};  // of each swap path, parity included, of the rank that needs most there
  Bytes device_limit = 0, host_limit = 0, machine_limit = 0;
  int world_size = 1, stage = 0;
  bool device_is_host = true;
  // What the engine is to be told (EngineOptions). 1 where an update moves nothing.
  std::uint32_t update_region_blocks = 1;
  Bytes machine_bytes() const { return host.total() + (device_is_host ? device.total() : 0); }
  bool host_fits() const;  // the limits that host memory counts against
  bool fits() const;
};

// With as large regions of the update as the request allows and host memory holds; the smallest where none
// fit.
MemoryPlan plan_memory(const PlanRequest& request);
// Bytes on the wire of one optimizer step, summed over ranks: what the communicator's counters must show.
// `first_step`: before the order of acquires is known.
TrafficCounters plan_traffic(const PlanRequest& request, bool first_step);
// Bytes that one step reads from and writes to NVMe, all ranks.
IoCounters plan_io(const PlanRequest& request);

// The table: one line a tag, one column a tier, the total, the limit, what is free or missing.
std::string ledger_table(const MemoryPlan& plan);
// One sentence naming the smallest change that fits ("--bucket 2048KiB", "--offload-optimizer nvme",
// "--device-memory 312MiB", "--stage 3 on 4 ranks"), found by planning the alternatives in order of cost.
// Empty when the plan fits already.
std::string smallest_change_that_fits(const PlanRequest& request);
// The smallest stage at which the request fits, its tiers kept where they are legal.
std::optional<int> smallest_stage_that_fits(const PlanRequest& request);

}  // namespace headrace
