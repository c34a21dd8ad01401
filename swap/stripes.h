// The blocks of an open store on its paths: what a transfer needs for as long as it lives, even beyond the
// store.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/io_engine.h"
#include "headrace/parity_code.h"
#include "headrace/swap_store.h"
#include "swap/path_group.h"
#include "swap/stripe_map.h"

namespace headrace::swap {

// Memory for direct I/O outside the pools.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  explicit AlignedMemory(Bytes bytes);
  std::span<std::byte> memory() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  Bytes bytes_ = 0;
};

// A fixed number of equal buffers for parity pieces, and one more for rebuilding, of which one at a time
// makes use. Any thread.
class ParityBuffers {
 public:
  // `memory` may be empty: it is allocated then.
  ParityBuffers(Bytes piece_bytes, std::uint32_t parity, std::uint32_t buffers, std::span<std::byte> memory);
  static Bytes bytes(Bytes piece_bytes, std::uint32_t parity, std::uint32_t buffers);

  class Slot {
   public:
    Slot() = default;
    Slot(ParityBuffers* owner, std::byte* memory) : owner_(owner), memory_(memory) {}
    Slot(Slot&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), memory_(std::exchange(other.memory_, nullptr)) {}
    Slot& operator=(Slot&& other) noexcept;
    ~Slot() { reset(); }
    explicit operator bool() const { return memory_ != nullptr; }
    std::byte* memory() const { return memory_; }
    void reset() noexcept;

   private:
    ParityBuffers* owner_ = nullptr;
    std::byte* memory_ = nullptr;
  };
  Slot try_acquire();  // empty when none is free
  // The lock is held for as long as the memory is used.
  std::unique_lock<std::mutex> lock_rebuild_memory() { return std::unique_lock(rebuilding_); }
  std::byte* rebuild_memory() const { return rebuild_; }

 private:
  AlignedMemory own_;
  std::mutex mutex_, rebuilding_;
  std::vector<std::byte*> free_;  // under mutex_
  std::byte* rebuild_ = nullptr;
};

// The path's extents.bin; without direct I/O where its disk asks for more than the store's alignment.
IoFile open_extents(const std::string& directory, const StripeShape& shape, IoFile::Mode mode);

struct Stripes {
  std::vector<SwapBlock> blocks;
  StripeMap map;
  std::optional<ParityCode> code;        // with parity
  std::optional<ParityBuffers> buffers;  // with parity
  PathGroup group;
  IoEngine& engine;

  Stripes(std::vector<SwapBlock> blocks_of_store, StripeMap map_of_blocks, std::vector<StorePath> paths,
          const PathsState& state, IoEngine& io, std::uint32_t parity_buffers,
          std::span<std::byte> parity_memory);
  // Bytes of a piece, in the block's buffer or behind each other in the parity memory.
  std::byte* piece_memory(std::uint32_t block, std::uint32_t piece, std::byte* data, std::byte* parity) const;
  // Reads all pieces of a version behind each other, of those paths that are not lost. By piece: empty when
  // it is as it was written, else what is wrong.
  std::vector<std::string> read_pieces(std::uint32_t block, std::span<const ExtentEntry> entries,
                                       std::byte* memory) const;
  // Parity and checksums of what is to be written; entries of one block, without places.
  void seal(std::uint32_t block, std::byte* data, std::byte* parity, std::span<ExtentEntry> entries) const;
};

}  // namespace headrace::swap
