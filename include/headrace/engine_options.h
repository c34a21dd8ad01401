// What the engine is told once: the stage, the tiers, the optimizer and its groups, the sizes of buffers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/dtype.h"
#include "headrace/loss_scale.h"
#include "headrace/optimizer_state.h"
#include "headrace/parameter_groups.h"
#include "headrace/swap_store.h"

namespace headrace {

enum class Tier : std::uint8_t { device, host, nvme };
std::string_view name_of(Tier tier);

// Where one kind of state lives, and whether each rank holds its shard or all of it.
struct Placement {
  bool sharded = false;
  Tier tier = Tier::device;
};

struct EngineOptions {
  int stage = 0;
  Tier optimizer_tier = Tier::device;
  Tier parameter_tier = Tier::device;
  Tier gradient_tier = Tier::device;

  DType dtype = DType::bf16;  // of parameters, of gradients on the wire and after the boundary rounding
  int accumulation = 1;       // micro-batches a step
  bool average_micro_batches = true;  // else their gradients are added, as PyTorch does
  double clip = 1.0;                  // global norm; 0: no clipping
  LossScaleOptions loss_scale;        // of fp16 models
  OptimizerArguments optimizer;
  std::vector<ParameterGroup> groups = {{}};  // by number, in messages too (units.h)
  MasterDType master_dtype = MasterDType::f32;
  MomentDType moment_dtype = MomentDType::f32;
  std::uint64_t seed = 0;  // of initial values and of stochastic rounding

  Bytes host_memory_bytes = 0;  // hard limit of the host tier
  // Most optimizer blocks of an update's region where gradients or parameters move for it, each in buffers of
  // its own: fewer take less host memory (MemoryPlan::update_region_blocks) and give the same states.
  std::uint32_t update_region_blocks = ~std::uint32_t{0};
  Bytes bucket_bytes = 4 << 20;      // communication bucket, constant
  Bytes swap_block_bytes = 3 << 20;  // optimizer block: states of whole norm chunks (optimizer_blocks.h)
  std::uint32_t swap_buffers = 8;    // at least 3
  Bytes swap_cache_bytes = 0;        // host memory for optimizer blocks that are written but never read again
  std::uint32_t snapshot_buffers = 0;  // optimizer blocks that an update may overtake a snapshot by; 0: none
  // Pinned buffers on the way to NVMe, one block each, at least 1: of parameters, of gradients (and their
  // sums).
  std::uint32_t parameter_buffers = 16, gradient_buffers = 8;
  std::uint32_t prefetch_units = 1;     // units gathered ahead of the one in use
  std::uint64_t persistence_numel = 0;  // stage 3: units of at most so many elements stay gathered
  bool retain_adjacent = true;  // stage 3: a released unit that is acquired next is not gathered again
  bool pin_memory = true;       // lock host memory for copies and I/O, where the system lets us

  std::vector<std::string> swap_directories;  // of this rank, one a swap path
  std::uint32_t swap_parity = 0;              // swap paths that may be lost
  std::vector<double> swap_path_rates;        // bytes per second of each; empty: all alike
  Durability durability = Durability::step;
  std::uint32_t swap_pins = 0;  // versions that a new swap store can keep beside the last two

  // Skipped steps are then how the scale is found, and the engine ends them at the smallest.
  bool searches_loss_scale() const { return dtype == DType::f16 && loss_scale.fixed == 0; }
  StateFormat state_format() const { return format_of(optimizer, master_dtype, moment_dtype); }
};

// Checked once: throws UsageError for combinations that have no meaning.
struct ResolvedPlacement {
  Placement optimizer, gradients, parameters;
  bool uses_nvme() const {
    return optimizer.tier == Tier::nvme || gradients.tier == Tier::nvme || parameters.tier == Tier::nvme;
  }
};
ResolvedPlacement resolve_placement(const EngineOptions& options);

// What a new run's gradients are multiplied by: 1 for all but fp16 models. Throws UsageError (loss_scale.h).
LossScale initial_loss_scale(const EngineOptions& options);

// The folders, below a rank's swap folders, of what is on NVMe and ends with the run: parameters, gradients.
std::vector<std::string> scratch_directories(const std::vector<std::string>& swap_directories);

}  // namespace headrace
