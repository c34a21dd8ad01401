// Low-precision parameters whose home is NVMe: this rank's shard of a unit, block by block, through pinned
// buffers to the device, those of the next gathers read ahead; and back after an update. A unit of more
// blocks than buffers goes in waves.
//
// Threads: the owner thread. Reads end and begin in the upload lane as well, so they go on by themselves.
#pragma once

#include <optional>
#include <vector>

#include "src/zero/block_ring.h"

namespace headrace {

class ParameterBlocks {
 public:
  ParameterBlocks(EngineContext& context, ScratchStore& store);

  std::uint32_t buffers() const { return ring_.count(); }
  // Enqueues on the upload lane: the own shard of `unit` to its place in the whole unit at `memory`.
  void upload(UnitId unit, std::byte* memory);
  // The units whose upload comes next, in this order.
  void read_ahead(const std::vector<UnitId>& units);
  // Parameters are about to change: what was read ahead is stale.
  void drop_read_ahead() { reader_.drop_all(); }

  // Between the two calls the block's new contents are put into the buffer: by the owner, who may have to
  // wait for a free one, or by copies in `lane`.
  std::byte* begin_write(std::uint32_t block, std::optional<Lane> lane);
  void end_write(std::optional<Lane> lane);
  // Blocks until all writes are done; lanes idle.
  void flush() { ring_.flush(); }
  void abandon() noexcept { ring_.abandon(); }

  double waited_seconds(Lane lane) const { return ring_.waited_seconds(lane); }

 private:
  EngineContext& context_;
  ScratchStore& store_;
  BlockRing ring_;
  BlockReader reader_;
  BlockRing::Handle open_;  // between begin_write and end_write
};

}  // namespace headrace
