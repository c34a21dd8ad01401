// The ZeRO engine: one class for all stages, tiers and backends. A stage is data (Placement); a plan is made
// from it once and executed. It is driven by ModuleHooks and knows nothing of models.
//
//   Engine engine(device, kernels, communicator, io, options);
//   UnitId u = engine.add_unit(spec); ...; engine.initialise();
//   for each micro-batch: engine.begin_micro_batch(); model calls the hooks
//   StepResult r = engine.step(learning_rate);
//
// Threads: one owner thread. The hooks block only while a bounded buffer is in use; step() blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/communicator.h"
#include "headrace/device.h"
#include "headrace/io_engine.h"
#include "headrace/kernels.h"
#include "headrace/memory.h"
#include "headrace/optimizer_state.h"
#include "headrace/step_result.h"
#include "headrace/swap_store.h"
#include "headrace/units.h"

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

  DType dtype = DType::bf16;     // of parameters, of gradients on the wire and after the boundary rounding
  int accumulation = 1;          // micro-batches a step
  double clip = 1.0;             // global norm; 0: no clipping
  LossScaleOptions loss_scale;   // of fp16 models
  OptimizerArguments optimizer;  // weight_decay: of decayed groups
  MasterDType master_dtype = MasterDType::f32;
  MomentDType moment_dtype = MomentDType::f32;
  std::uint64_t seed = 0;  // of initial values and of stochastic rounding

  Bytes host_memory_bytes = 0;       // hard limit of the host tier
  Bytes bucket_bytes = 4 << 20;      // communication bucket, constant
  Bytes swap_block_bytes = 3 << 20;  // optimizer block: states of whole norm chunks (optimizer_blocks.h)
  std::uint32_t swap_buffers = 8;    // at least 3
  Bytes swap_cache_bytes = 0;        // host memory for optimizer blocks that are written but never read again
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

class Engine final : public ModuleHooks {
 public:
  // `io` may be null when nothing lives on NVMe. `memory` divides device.arena().
  Engine(Device& device, DeviceKernels& kernels, Communicator& communicator, IoEngine* io,
         const EngineOptions& options);
  ~Engine() override;

  UnitId add_unit(UnitSpec spec);
  const UnitLayout& layout(UnitId unit) const;
  std::size_t unit_count() const;
  std::uint64_t parameter_numel() const;

  // Allocates every tier and fills the states from the initial distributions (counter-based: the same for any
  // world size), or from values(parameter, first element, out). `start` goes with the first commit.
  // `before_replacing` is called when memory is taken, right before an earlier run's swap store is replaced;
  // it throws to keep that.
  using ValueSource = std::function<void(const ParameterSpec&, std::uint64_t first, std::span<float> out)>;
  void initialise(const ValueSource& values = {}, const TrainingState& start = {},
                  const std::function<void()>& before_replacing = {});
  // Continues from the newest step that every rank has committed in its swap store. `accept` sees it before
  // anything is changed, and throws to refuse it.
  using StateCheck = std::function<void(const TrainingState&)>;
  TrainingState resume(const StateCheck& accept = {});

  DeviceMemory& device_memory();
  MemoryBudget& device_budget();
  MemoryBudget& host_budget();

  void begin_micro_batch();
  std::byte* acquire(UnitId unit) override;
  void release(UnitId unit) override;
  std::byte* gradient_buffer(UnitId unit) override;
  void gradients_ready(UnitId unit) override;

  // Norm, clip, update, parameters back to their tier, commit. `state` is what to store with the commit; its
  // loss scale is that of the gradients, and becomes the next step's before it is stored. Throws Error on
  // every rank, without a commit, where a gradient is not finite and the loss scale is at its minimum.
  StepResult step(double learning_rate, TrainingState& state);
  std::uint64_t steps_applied() const;

  // The proof of DESIGN section 9, over all ranks (a collective).
  std::uint64_t state_hash(const TrainingState& state);
  // The newest master (kind 0) and moments (kind 1 + index, moment_of) of this rank's optimizer shard as fp32
  // values, in order of (unit, flat index).
  using StateVisitor =
      std::function<void(UnitId, std::uint64_t first, int kind, std::span<const float> values)>;
  void visit_optimizer_state(const StateVisitor& visit);
  // Whole parameters of one unit as the device sees them, copied to the host (a collective).
  std::vector<float> read_parameters(UnitId unit);

  EngineCounters counters() const;

 private:
  friend class UpdateOverride;  // src/zero/update_override.h
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
