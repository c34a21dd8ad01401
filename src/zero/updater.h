// Runs an update plan (update_plan.h) over the blocks of this rank: for every combination of tiers the same
// steps, with the block's gradient brought to, and its low-precision parameters taken from, the place where
// its states are.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "src/zero/gradient_store.h"
#include "src/zero/parameter_store.h"
#include "src/zero/state_snapshot.h"
#include "src/zero/state_store.h"
#include "src/zero/update_plan.h"
#include "src/zero/update_staging.h"

namespace headrace {

class Updater {
 public:
  Updater(EngineContext& context, const UpdateStaging& staging, StateStore& states, GradientStore& gradients,
          ParameterStore& parameters, StateSnapshots* snapshots = nullptr);

  // One optimizer step. `arguments` carry step, learning rate and scale of every group (parameter_groups.h).
  void run(std::span<const OptimizerArguments> arguments, bool reversed);
  // Low-precision parameters := round(master), for every block; `fill`, when given, first writes each block's
  // states, in host memory and of kept_format.
  using Fill = std::function<void(const OptimizerBlock&, const StateArrays&)>;
  void refresh(const Fill& fill);
  // Brings each block's states to host memory in turn, as kept_format.
  void visit(const std::function<void(const OptimizerBlock&, const StateArrays&)>& visit);

 private:
  struct StagingSlot {
    std::byte* memory = nullptr;
    Event busy;  // the last use of its contents
  };
  std::vector<StagingSlot> allocate_slots(std::byte* memory) const;
  void execute(const UpdateStep& step, std::span<const OptimizerArguments> arguments);
  void fetch_gradient(std::uint32_t block);
  // Waits for the block's states and gradient, and adds it to the region that is updated next.
  void join(std::uint32_t block);
  void update_region(std::span<const OptimizerArguments> arguments);
  UpdateSpan whole_block(std::uint32_t block);
  bool parameters_are_master() const { return format_.master == MasterDType::none; }
  // Whose memory begins at `states`, with the parameters for a master where there is no other.
  StateArrays arrays_of(std::uint32_t block, std::byte* states) const;
  // Device states pass through visit_buffer_, their master in front.
  StateArrays visited_arrays(std::uint32_t block);
  void copy_visited(std::uint32_t block, std::byte* states, Lane lane);
  // Where the update finds the block's gradient; done_with_gradient() once it has been enqueued.
  const std::byte* gradient(std::uint32_t block);
  void done_with_gradient(std::uint32_t block);
  void store_parameters(std::uint32_t block);
  void fill_block(std::uint32_t block, const Fill& fill);
  void round_block(std::uint32_t block);
  // Where the update writes the block's low-precision parameters: their home, or a staging slot.
  std::byte* low_precision_target(std::uint32_t block);
  bool moves_parameters(std::uint32_t block) const;
  Bytes low_precision_bytes(std::uint32_t block) const;
  const OptimizerBlock& block_of(std::uint32_t block) const { return states_.blocks()[block]; }
  // Neighbours in the order of the update have different slots, whatever blocks are left out.
  StagingSlot& gradient_slot(std::uint32_t block) {
    return gradient_slots_[position_[block] % gradient_slots_.size()];
  }
  StagingSlot& parameter_slot(std::uint32_t block) {
    return parameter_slots_[position_[block] % parameter_slots_.size()];
  }

  EngineContext& context_;
  StateStore& states_;
  GradientStore& gradients_;
  ParameterStore& parameters_;
  StateSnapshots* snapshots_;  // may be null
  StateFormat format_, kept_format_;
  UpdateStaging staging_;
  HostBuffer host_staging_, visit_buffer_;
  Pin host_staging_pin_, visit_buffer_pin_;
  std::vector<StagingSlot> gradient_slots_, parameter_slots_;
  std::vector<std::uint32_t> position_;  // per block: among those that this step updates
  std::vector<Event> fetched_;           // per block: its gradient has arrived
  std::uint64_t update_numel_ = 0;       // elements of this step's blocks
  std::vector<GroupSpan> region_;
  std::vector<std::uint32_t> region_blocks_;
};

}  // namespace headrace
