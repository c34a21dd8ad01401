// Gradients from a module's flat buffer to the canonical gradient of DESIGN section 9: reduce-scattered in
// constant-size buckets, summed in fp32 in rank order, accumulated over micro-batches in fp32, rounded once,
// its squared norm taken on the way, kept in the tier of its placement.
#pragma once

#include <array>
#include <vector>

#include "src/zero/context.h"
#include "src/zero/gather_schedule.h"
#include "src/zero/gradient_blocks.h"
#include "src/zero/overflow_trace.h"

namespace headrace {

// Constant-size buffers of a reduction, in pairs so that one drains while the other fills.
struct BucketLayout {
  std::uint64_t numel = 0;  // elements of this rank's slice in one bucket; a multiple of norm_chunk_numel
  Bytes receive_bytes = 0, sum_bytes = 0, rounded_bytes = 0;  // of one of the two
  Bytes total_bytes() const;
};
BucketLayout make_bucket_layout(const std::vector<UnitPlan>& units, const EngineOptions& options,
                                const ResolvedPlacement& placement, int world_size);

// Partial norms of this rank's shards: one fp64 value a chunk.
Bytes norm_partials_bytes(const std::vector<UnitPlan>& units);
// Whether the device's kernels take them; otherwise the host's, which round what was accumulated there.
bool norm_is_taken_on_device(const EngineOptions& options, const ResolvedPlacement& placement);

// Whether a unit's flat gradient has memory of its own; otherwise it passes through one of a few slots.
bool gradient_is_resident(const ResolvedPlacement& placement, int world_size);
GatherSchedule make_gradient_slots(const std::vector<UnitPlan>& units, const EngineOptions& options,
                                   const ResolvedPlacement& placement, int world_size);

class GradientStore {
 public:
  GradientStore(EngineContext& context, ScratchStore& scratch);

  void begin_micro_batch();
  std::byte* buffer(UnitId unit);
  void ready(UnitId unit);

  // At the boundary, all lanes idle: completes units that missed micro-batches, gathers the partial norms of
  // every rank and returns the sum of squares of the summed gradient, not finite if any element is not.
  double finish();
  // Stage 0: every rank gets the whole reduced gradient. Enqueues.
  void replicate();
  // Starts the next window of micro-batches.
  void reset();
  // Whether the next window's gradients are looked at before they are summed (overflow_trace.h).
  void trace_overflow(bool wanted) { trace_.arm(wanted); }
  // After finish(), before reset(), where the sum of squares is not finite. The first element of this rank's
  // own gradients that is not finite, where that was looked for; and of its shard of the sums. Block.
  GradientPlace first_before_the_sum() { return trace_.first(); }
  GradientPlace first_of_the_sum();

  int micro_batches() const { return micro_batches_; }
  bool has_gradient(UnitId unit) const { return contributions_[unit] > 0; }
  bool on_device() const { return context_.placement.gradients.tier == Tier::device; }
  // On the device and the host; on NVMe a gradient has no address, nvme() brings it.
  const std::byte* address(UnitId unit, std::uint64_t first) const;
  GradientBlocks* nvme() { return nvme_.get(); }

 private:
  struct Home {
    std::byte* device = nullptr;
    HostBuffer host;
    Pin host_pin;
    std::uint64_t first = 0;  // flat index of the first element held
    float* device_accumulator = nullptr;
    HostBuffer host_accumulator;
    Pin accumulator_pin;
    std::uint64_t first_partial = 0;  // of the own shard's chunks, in the arrays of all units
  };
  struct Bucket {
    std::byte* receive = nullptr;
    float* sum = nullptr;
    std::byte* rounded = nullptr;
    Event drained;
  };
  void allocate_homes();
  void allocate_buckets();
  float* accumulator(UnitId unit, std::uint64_t first) const;
  double* partials(UnitId unit, std::uint64_t first) const;
  void collect_partials();
  std::uint64_t first_in_chunk(UnitId unit, Range chunk);
  void reduce_bucket(UnitId unit, const std::byte* gradient, std::uint64_t index);
  void keep_on_device(UnitId unit, Range own, std::span<const void* const> slices, Bucket& bucket);
  void keep_on_host(UnitId unit, Range own, std::span<const void* const> slices, Bucket& bucket);
  void keep_on_nvme(UnitId unit, Range own, std::span<const void* const> slices, Bucket& bucket);
  void round_accumulator(UnitId unit, Range range);
  void expect_sums();
  bool last_contribution(UnitId unit) const {
    return contributions_[unit] + 1 == context_.options.accumulation;
  }

  EngineContext& context_;
  OverflowTrace trace_;
  bool resident_;
  GatherSchedule slots_;
  std::vector<std::byte*> slot_memory_;
  std::vector<Event> slot_drained_, unit_drained_;
  std::vector<Home> homes_;
  BucketLayout bucket_layout_;
  std::array<Bucket, 2> buckets_;
  std::uint64_t buckets_used_ = 0;
  HostBuffer download_staging_;
  Pin download_staging_pin_;
  double* device_partials_ = nullptr;  // null when the host takes the norm
  HostBuffer host_partials_;
  Pin host_partials_pin_;
  std::unique_ptr<GradientBlocks> nvme_;    // at Tier::nvme
  std::vector<UnitId> order_, last_order_;  // of ready() in this micro-batch and the one before
  std::vector<int> contributions_;
  int micro_batches_ = 0;
};

}  // namespace headrace
