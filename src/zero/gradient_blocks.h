// Gradients whose home is NVMe: reduced slices are put together to the optimizer's blocks in pinned buffers,
// a block is written when it is complete, and read for the update. With accumulation the fp32 sums live there
// too: each micro-batch reads, adds to and writes them, read ahead in the order of the micro-batch before;
// the last one rounds them once, slice by slice (DESIGN section 9).
//
// Threads: the owner thread; everything before the update is enqueued on the download lane.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/zero/block_ring.h"

namespace headrace {

class GradientBlocks {
 public:
  GradientBlocks(EngineContext& context, ScratchStore& store);

  // The slice `part` of the own shard, from device memory at `source`; slices of a unit come in order and
  // cover its shard. Without accumulation: rounded already.
  void keep(UnitId unit, Range part, const std::byte* source);
  // With accumulation: fp32 sums over ranks, to be added to those of earlier micro-batches, if `first` is not
  // set, by way of `staging`, host memory for one slice. `last`: the total is rounded, its norms go to
  // `partials`.
  struct Sum {
    const float* source = nullptr;  // null: nothing to add, only to round
    std::byte* staging = nullptr;
    bool first = false, last = false;
    double* partials = nullptr;
  };
  void accumulate(UnitId unit, Range part, const Sum& sum);
  // Which units' sums accumulate() needs next, in this order.
  void expect_sums(const std::vector<UnitId>& units);

  // Lanes idle: everything is on NVMe.
  void finish();

  // The update takes blocks in the order of `blocks`.
  void begin_update(std::vector<std::uint32_t> blocks);
  // The block's gradient: for the owner, which waits, or for copies in `lane`. Until release.
  const std::byte* take(std::uint32_t block, std::optional<Lane> lane);
  void release(std::optional<Lane> lane);

  // In the place of an update: what `look` says of elements within one block. Blocks.
  std::uint64_t inspect(UnitId unit, Range part, const std::function<std::uint64_t(const std::byte*)>& look);

  void abandon() noexcept;
  double waited_seconds(Lane lane) const;

 private:
  bool accumulates() const { return sums_ != nullptr; }
  void open(std::uint32_t block, const Sum& sum);
  void close(const Sum& sum);
  void add(const OptimizerBlock& block, Range part, const Sum& sum, std::uint64_t skipped);
  void round(const OptimizerBlock& block, Range part, double* partials);
  // Calls visit(block number, its part) for the blocks of the unit that `part` touches.
  template <class Visit>
  void for_each_block(UnitId unit, Range part, const Visit& visit) const;

  EngineContext& context_;
  ScratchStore& store_;
  BlockRing gradients_;
  std::unique_ptr<BlockRing> sums_;  // with accumulation
  BlockReader update_reader_;
  std::unique_ptr<BlockReader> sum_reader_;
  BlockRing::Handle open_gradient_, open_sum_;  // of the block being put together
  std::vector<BlockRing::Index> update_order_;
  std::size_t next_update_ = 0;  // position in it
  BlockRing::Handle taken_;
};

}  // namespace headrace
