#include "swap/extent_map.h"

#include "headrace/errors.h"

namespace headrace::swap {

ExtentMap::ExtentMap(const std::vector<SwapBlock>& blocks, Bytes alignment, Durability durability)
    : copies_(copies_of(durability)) {
  constexpr Bytes largest_file = Bytes{1} << 62;  // offsets are signed 64-bit in the kernel
  starts_.reserve(blocks.size() + 1);
  starts_.push_back(0);
  for (const SwapBlock& block : blocks) {
    if (block.bytes > largest_file || region_bytes_ + block.bytes > largest_file / copies_)
      throw DoesNotFit(
          fmt::format("swap block \"{}\" of {} bytes makes the swap file larger than any file "
                      "system can hold; use smaller blocks or more ranks.",
                      block.name, block.bytes));
    region_bytes_ += round_up(block.bytes, alignment);
    starts_.push_back(region_bytes_);
  }
}

bool ExtentMap::is_extent_of(std::uint32_t block, std::uint64_t candidate) const {
  for (std::uint32_t copy = 0; copy < copies_; ++copy)
    if (candidate == offset(block, copy)) return true;
  return false;
}

std::uint64_t ExtentMap::free_extent(std::uint32_t block, const ExtentEntry& newest,
                                     const ExtentEntry* superseded) const {
  if (copies_ == 1 || extent_bytes(block) == 0) return offset(block, 0);
  const auto holds = [](const ExtentEntry& entry, std::uint64_t at) {
    return entry.generation > 0 && entry.offset == at;
  };
  for (std::uint32_t copy = 0; copy < copies_; ++copy) {
    const std::uint64_t candidate = offset(block, copy);
    if (!holds(newest, candidate) && (superseded == nullptr || !holds(*superseded, candidate)))
      return candidate;
  }
  HEADRACE_CHECK(
      false, "swap block {} is written before release_superseded(): both its extents hold committed steps",
      block);
  return 0;
}

}  // namespace headrace::swap
