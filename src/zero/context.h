// What every part of the engine works with: the backends, the resolved options, the units and their shards.
// One owner thread.
#pragma once

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "headrace/engine.h"
#include "headrace/kept_format.h"
#include "headrace/optimizer_blocks.h"
#include "src/zero/partition.h"

namespace headrace {

struct UnitPlan {
  UnitLayout layout;
  std::uint64_t first_element = 0;  // its number in the model: the flat vectors end to end, aligned starts
  std::vector<Range> shards;        // one a rank, over the flat vector
  Range own;                        // this rank's
  bool gather_parameters = false;   // not resident: gathered into a slot by acquire
};

// A buffer of the engine made fast to copy, and to read and write on NVMe, as far as the system lets us.
// Declared behind the buffer, so that it goes first.
class [[nodiscard]] Pin {
 public:
  Pin() = default;
  Pin(Device& device, std::span<std::byte> memory) : device_(&device), memory_(memory) {}  // pinned already
  Pin(Pin&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)),
        memory_(other.memory_),
        registration_(std::move(other.registration_)) {}
  Pin& operator=(Pin&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(registration_, other.registration_);
    return *this;
  }
  void attach(IoRegistration registration) { registration_ = std::move(registration); }
  ~Pin() {
    registration_ = {};
    if (device_ != nullptr) device_->unpin(memory_);
  }

 private:
  Device* device_ = nullptr;  // null: nothing is pinned
  std::span<std::byte> memory_;
  IoRegistration registration_;
};

// Seconds that the owner thread stood still for one cause.
class WaitClock {
 public:
  template <class Wait>
  decltype(auto) time(const Wait& wait) {
    const Running running{*this};
    return wait();
  }
  double seconds() const { return std::chrono::duration<double>(waited_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    WaitClock& clock;
    Clock::time_point start = Clock::now();
    ~Running() { clock.waited_ += Clock::now() - start; }
  };
  Clock::duration waited_{0};
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
  WaitClock nvme_waits;  // of the owner: lanes count their own (BlockRing)
  // In the place of the host's update, for benchmarks (update_override.h).
  std::function<void(std::span<const GroupSpan>, std::span<const OptimizerArguments>, std::uint64_t)>
      host_update;

  EngineContext(Device& device_in, DeviceKernels& kernels_in, Communicator& communicator_in, IoEngine* io_in,
                const EngineOptions& options_in);
  Pin pin(std::span<std::byte> memory);         // for copies; an empty Pin where that is refused
  Pin pin_for_io(std::span<std::byte> memory);  // and for NVMe
  Bytes element_bytes() const { return size_of(options.dtype); }
  // The elements of a unit whose optimizer state this rank holds: its shard, or all of them.
  Range optimizer_range(const UnitPlan& unit) const;
};

// The plan of one unit for one rank: the same for the engine and the planner.
UnitPlan plan_unit(UnitLayout layout, const ResolvedPlacement& placement, const EngineOptions& options,
                   int rank, int world_size);

// Bytes of each shard of a unit, as a collective wants them.
std::vector<Bytes> piece_bytes(const UnitPlan& unit, Bytes element_bytes);

inline std::uint64_t block_numel(const EngineOptions& options) {
  return block_numel(options.swap_block_bytes, options.state_format());
}

// The part of a block of the unit for which this rank answers: of replicated states its own shard.
Range answered_for(const UnitPlan& unit, Range block);

// One optimizer block of this rank.
struct OptimizerBlock {
  UnitId unit = 0;
  Range range;
};
std::vector<OptimizerBlock> optimizer_blocks(const std::vector<UnitPlan>& units,
                                             const ResolvedPlacement& placement,
                                             const EngineOptions& options);

}  // namespace headrace
