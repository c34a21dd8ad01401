// Master parameters and moments, block by block, in the tier of their placement. On the device and the host a
// block has an address for the whole run; on NVMe it exists in memory only between a read and the reclaim of
// its write, except for the blocks that the cache holds: those are written as the others are, and read once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/numa_memory.h"
#include "src/zero/context.h"

namespace headrace {

// Bytes of a block that stays in device or host memory: whole cache lines, so that one may be updated while
// its neighbour is copied.
Bytes resident_state_bytes(std::uint64_t numel, const StateFormat& format);
// Bytes of a block in a buffer: whole pages, as direct I/O wants them; with parity for every piece of it.
Bytes state_buffer_bytes(std::uint64_t numel, const EngineOptions& options);
// Which blocks options.swap_cache_bytes keeps in host memory: as many as fit, spread evenly over the order of
// the update, so that the disk's work stays even too.
std::vector<bool> cached_blocks(const std::vector<OptimizerBlock>& blocks, const EngineOptions& options);

// Bytes of buffers for the chosen ones.
Bytes bytes_of_chosen(const std::vector<OptimizerBlock>& blocks, const std::vector<bool>& chosen,
                      const EngineOptions& options);

// How the store of this rank is made. Its layout is left to swap_layout.
SwapStoreOptions swap_store_options(const EngineOptions& options);
// Names and sizes of this rank's blocks as the swap store keeps them, and the layout text that says what they
// mean.
std::vector<SwapBlock> swap_blocks(const std::vector<UnitPlan>& units,
                                   const std::vector<OptimizerBlock>& blocks, const StateFormat& format);
std::string swap_layout(const std::vector<UnitPlan>& units, const std::vector<OptimizerBlock>& blocks,
                        const EngineOptions& options, int rank, int world_size);
// UsageError in words where the store in the swap folders has another layout than this run, `layout`.
void refuse_other_layout(const EngineContext& context, const std::string& layout);

class StateStore {
 public:
  // `region_blocks`: neighbours that the host updates together (update_staging.h).
  StateStore(EngineContext& context, std::vector<OptimizerBlock> blocks, std::uint32_t region_blocks);

  const std::vector<OptimizerBlock>& blocks() const { return blocks_; }
  Tier tier() const { return context_.placement.optimizer.tier; }

  // NVMe: makes the store, or opens that of an earlier run.
  void create_swap();
  void open_swap();
  SwapStore* swap() { return swap_.get(); }

  // Starts reading a block (NVMe), or does nothing. A buffer must be free: the plan reclaims in time.
  void read(std::uint32_t block);
  // Its arrays (state_arrays), after waiting for the read: a device address at Tier::device, else one of the
  // host.
  std::byte* state(std::uint32_t block);
  // Where it is in memory for the whole run, and up to date; null where it is not.
  std::byte* resident(std::uint32_t block) const {
    return tier() != Tier::nvme || loaded_[block] ? resident_[block] : nullptr;
  }
  // A block about to be written whole, without reading it.
  std::byte* overwrite(std::uint32_t block);
  // Starts writing it back (NVMe).
  void write(std::uint32_t block);
  // Ends the use of a block's buffer: waits for its write if one is in flight.
  void reclaim(std::uint32_t block);
  // After an error: waits for everything in flight and frees all buffers.
  void abandon() noexcept;

 private:
  struct InFlight {
    SwapTicket reading, writing;
    HostLease buffer;
  };
  void allocate_resident(std::uint32_t region_blocks);
  void allocate_cache();
  SwapStoreOptions store_options();
  bool cached(std::uint32_t block) const { return tier() == Tier::nvme && resident_[block] != nullptr; }
  HostLease buffer_for(std::uint32_t block);

  EngineContext& context_;
  StateFormat format_;
  std::vector<OptimizerBlock> blocks_;
  std::vector<std::byte*> resident_;  // a block's address for the whole run; null: it passes through the pool
  std::vector<bool> loaded_;          // cached blocks that hold their newest version
  HostBuffer host_;                   // all blocks at Tier::host, the cache at Tier::nvme
  NodeMemory host_nodes_;
  Pin host_pin_;
  std::unique_ptr<StagingPool> pool_;  // Tier::nvme
  NodeMemory pool_nodes_;
  Pin pool_pin_;
  HostBuffer parity_;  // of the swap store
  Pin parity_pin_;
  std::unique_ptr<SwapStore> swap_;
  std::vector<InFlight> in_flight_;
};

}  // namespace headrace
