// What every part of the engine works with: the backends, the resolved options, the units and their shards.
// One owner thread.
#pragma once

#include <vector>

#include "headrace/engine.h"
#include "headrace/optimizer_blocks.h"
#include "src/zero/partition.h"

namespace headrace {

struct UnitPlan {
  UnitLayout layout;
  std::vector<Range> shards;       // one a rank, over the flat vector
  Range own;                       // this rank's
  bool gather_parameters = false;  // not resident: gathered into a slot by acquire
};

struct EngineContext {
  Device& device;
  DeviceKernels& kernels;
  Communicator& communicator;
  IoEngine* io;
  EngineOptions options;
  ResolvedPlacement placement;
  MemoryBudget device_budget, host_budget;
  DeviceMemory device_memory;
  std::vector<UnitPlan> units;

  EngineContext(Device& device_in, DeviceKernels& kernels_in, Communicator& communicator_in, IoEngine* io_in,
                const EngineOptions& options_in);
  // Makes a buffer of the engine fast to copy, until unpin_all(): before the first of them goes away.
  bool pin(std::span<std::byte> memory);         // whether it is pinned now
  void pin_for_io(std::span<std::byte> memory);  // and fast to read and write on NVMe
  void unpin_all() noexcept;
  Bytes element_bytes() const { return size_of(options.dtype); }
  // The elements of a unit whose optimizer state this rank holds: its shard, or all of them.
  Range optimizer_range(const UnitPlan& unit) const;

 private:
  std::vector<std::span<std::byte>> pinned_;
  std::vector<IoRegistration> registrations_;
};

// The plan of one unit for one rank: the same for the engine and the planner.
UnitPlan plan_unit(UnitLayout layout, const ResolvedPlacement& placement, const EngineOptions& options,
                   int rank, int world_size);

// Bytes of each shard of a unit, as a collective wants them.
std::vector<Bytes> piece_bytes(const UnitPlan& unit, Bytes element_bytes);

inline std::uint64_t block_numel(const EngineOptions& options) {
  return block_numel(options.swap_block_bytes);
}

// One optimizer block of this rank.
struct OptimizerBlock {
  UnitId unit = 0;
  Range range;
};
std::vector<OptimizerBlock> optimizer_blocks(const std::vector<UnitPlan>& units,
                                             const ResolvedPlacement& placement,
                                             const EngineOptions& options);

}  // namespace headrace
