// What a benchmark writes to a drive: noise, which no drive compresses, known by its place. Each sector
// starts with a stamp that says where it belongs and which write brought it; behind it is a tile of noise
// that repeats, so that a buffer filled once only needs new stamps, and reads are checked at the price of one
// cache line a sector. The noise does not depend on the write, so a read beside a write of the same place is
// sound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "headrace/bytes.h"

namespace headrace {

// The writes that may have brought a sector.
struct Generations {
  std::uint32_t oldest = 0, newest = 0;
};

// Blocks are whole sectors at offsets of whole sectors. Immutable: any thread.
class DrivePattern {
 public:
  static constexpr Bytes sector_bytes = 4096, tile_bytes = Bytes{1} << 20;

  explicit DrivePattern(std::uint64_t seed);

  // Everything but the stamps: the same for all offsets that are equal modulo tile_bytes.
  void fill_noise(std::span<std::byte> block, std::uint64_t offset) const;
  void stamp(std::span<std::byte> block, std::uint64_t offset, std::uint32_t generation) const;
  // Makes each stamp wrong: what is right after a read came with it.
  static void clear_stamps(std::span<std::byte> block);

  // Offset in the block of the first sector that does not belong there, or of the first byte that differs.
  std::optional<Bytes> wrong_stamp(std::span<const std::byte> block, std::uint64_t offset,
                                   Generations allowed) const;
  std::optional<Bytes> wrong_byte(std::span<const std::byte> block, std::uint64_t offset,
                                  Generations allowed) const;

 private:
  std::uint64_t seed_;
  std::vector<std::byte> tile_;
};

}  // namespace headrace
