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
#include "headrace/engine_options.h"
#include "headrace/engine_states.h"
#include "headrace/io_engine.h"
#include "headrace/kernels.h"
#include "headrace/memory.h"
#include "headrace/step_result.h"
#include "headrace/units.h"

namespace headrace {

class SwapStore;

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
  // As initialise, from states of elsewhere: fill(piece, arrays, at) writes each piece that this rank holds.
  // `steps_applied` is how many optimizer steps they have seen. Returns `start` with the loss scale that this
  // run's options make of it.
  TrainingState restore(const PieceVisitor& fill, TrainingState start, std::uint64_t steps_applied,
                        const std::function<void()>& before_replacing = {});
  // Continues from the newest step that every rank has committed in its swap store. `accept` sees it before
  // anything is changed, and throws to refuse it.
  using StateCheck = std::function<void(const TrainingState&)>;
  TrainingState resume(const StateCheck& accept = {});
  // From the version that every rank's store keeps as `pin`; it is the newest from then on.
  TrainingState go_back(const std::string& pin, const StateCheck& accept = {});
  // Of optimizer states on NVMe, else null. Between two steps; only pins are changed.
  SwapStore* swap_store();

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
  // Each group takes its factor of the one rate, or the rates as they are, one a group.
  StepResult step(double learning_rate, TrainingState& state);
  StepResult step(std::span<const double> learning_rates, TrainingState& state);
  std::uint64_t steps_applied() const;

  // The proof of DESIGN section 9, over all ranks (a collective).
  std::uint64_t state_hash(const TrainingState& state);
  // The newest master (kind 0) and moments (kind 1 + index, moment_of) of this rank's optimizer shard as fp32
  // values, in order of (unit, flat index).
  using StateVisitor =
      std::function<void(UnitId, std::uint64_t first, int kind, std::span<const float> values)>;
  void visit_optimizer_state(const StateVisitor& visit);
  // The states for which this rank answers, as a checkpoint keeps them: every element of the model is one
  // rank's. visit_pieces brings each to host memory, in the order of state_pieces.
  StateFormat state_format() const;  // of the pieces: their master is never `none`
  std::vector<StatePiece> state_pieces() const;
  void visit_pieces(const PieceVisitor& visit);
  // Of now: between two steps, one at a time. States of the device come to the reader by the engine's hooks,
  // and by serve_snapshot() where none are called.
  std::unique_ptr<StateSnapshot> snapshot();
  void serve_snapshot();
  void end_snapshot() noexcept;                    // whoever reads one gets an Error
  std::vector<StatePiece> pieces_to_fill() const;  // by restore(); as soon as the units are added
  // The model as the engine was told it: unit by unit.
  std::vector<const ParameterSpec*> parameters() const;
  // Whole parameters of one unit as the device sees them, copied to the host (a collective).
  std::vector<float> read_parameters(UnitId unit);

  EngineCounters counters() const;

 private:
  friend class UpdateOverride;  // src/zero/update_override.h
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
