// The second swap store of a rank, in the subfolder `scratch` of its swap folder: low-precision parameters
// and gradients by the optimizer's blocks, so that storage and update have the same borders. Nothing in it
// outlives the run (parameters are rounded again from the masters, gradients end with their step): it is
// written in place without a journal, every block checked by its CRC when read, and removed at the end.
//
// Threads: create() belongs to the owner thread; any thread may read and write afterwards.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/zero/context.h"

namespace headrace {

enum class ScratchKind : std::uint8_t { parameters, gradients, accumulators };
inline constexpr std::size_t scratch_kinds = 3;

// What is in it: the same for the engine and the planner.
struct ScratchLayout {
  using Index = SwapStore::BlockIndex;
  std::vector<SwapBlock> blocks;
  std::array<Bytes, scratch_kinds> disk_bytes{};    // of each kind
  std::array<Bytes, scratch_kinds> buffer_bytes{};  // that hold the largest block of each kind; 0: none
  // Per optimizer block: its place in `blocks`; `none` where that kind does not live on NVMe.
  static constexpr Index none = ~Index{0};
  std::array<std::vector<Index>, scratch_kinds> index;
};
// The store's options; its layout and the memory of its parity aside.
SwapStoreOptions scratch_store_options(const EngineOptions& options);
// Bytes that a block takes in a buffer and in a transfer.
Bytes scratch_buffer_bytes(Bytes bytes, const EngineOptions& options);
ScratchLayout make_scratch_layout(const std::vector<UnitPlan>& units,
                                  const std::vector<OptimizerBlock>& blocks,
                                  const ResolvedPlacement& placement, const EngineOptions& options);

class ScratchStore {
 public:
  using Index = ScratchLayout::Index;
  ScratchStore(EngineContext& context, std::vector<OptimizerBlock> blocks);
  ~ScratchStore();

  // Makes the files, in place of what an earlier run left, or only removes that when nothing lives here. Once
  // the main store, if there is one, is held; the paths that it has lost are not used here either, and parity
  // is less by as many.
  void create(const std::vector<std::string>& lost_swap_directories);

  const std::vector<OptimizerBlock>& blocks() const { return blocks_; }
  // The optimizer blocks of a unit: [first, second).
  std::pair<std::uint32_t, std::uint32_t> blocks_of(UnitId unit) const;
  Index index(ScratchKind kind, std::uint32_t block) const {
    return layout_.index[static_cast<std::size_t>(kind)][block];
  }
  Bytes buffer_bytes(ScratchKind kind) const { return layout_.buffer_bytes[static_cast<std::size_t>(kind)]; }

  // Any thread. The memory is the caller's and stays until the ticket is done.
  SwapTicket read(Index index, std::span<std::byte> memory);
  SwapTicket write(Index index, std::span<std::byte> memory);

 private:
  void allocate();

  EngineContext& context_;
  std::vector<OptimizerBlock> blocks_;
  std::vector<std::uint32_t> first_of_unit_;  // one more than units
  ScratchLayout layout_;
  std::mutex mutex_;
  HostBuffer parity_;
  Pin parity_pin_;
  std::unique_ptr<SwapStore> store_;
  std::vector<std::string> made_folders_;  // the rank's own, when this run made them
};

}  // namespace headrace
