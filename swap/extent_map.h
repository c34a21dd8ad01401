// Where the extents of each block lie in extents.bin, and which version of each block is where. Pure
// arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/swap_store.h"

namespace headrace::swap {

// What every file system here is content with; a file that asks for more gets more.
inline constexpr Bytes default_extent_alignment = 4096;

// One version of one block.
struct ExtentEntry {
  std::uint64_t offset = 0;
  std::uint64_t generation = 0;  // counts the block's versions; 0: never written
  std::uint32_t crc32c = 0;
  bool operator==(const ExtentEntry&) const = default;
};
using ExtentTable = std::vector<ExtentEntry>;  // one entry a block

constexpr std::uint32_t copies_of(Durability durability) {
  return durability == Durability::step ? 2 : 1;
}

class ExtentMap {
 public:
  ExtentMap(const std::vector<SwapBlock>& blocks, Bytes alignment, Durability durability);
  Bytes file_bytes() const { return region_bytes_ * copies_; }
  Bytes extent_bytes(std::uint32_t block) const { return starts_[block + 1] - starts_[block]; }
  std::uint64_t offset(std::uint32_t block, std::uint32_t copy) const {
    return copy * region_bytes_ + starts_[block];
  }
  bool is_extent_of(std::uint32_t block, std::uint64_t offset) const;
  // The extent of the block that neither entry occupies. HEADRACE_CHECK fails when both extents are in use;
  // with one copy it is always that one. `superseded` may be null.
  std::uint64_t free_extent(std::uint32_t block, const ExtentEntry& newest,
                            const ExtentEntry* superseded) const;

 private:
  std::uint32_t copies_;
  std::vector<std::uint64_t> starts_;  // of the first copy; one more than blocks
  Bytes region_bytes_ = 0;
};

}  // namespace headrace::swap
