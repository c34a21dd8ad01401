// Where the pieces of each block lie: on which path, and where in its extents.bin. Pure arithmetic.
//
// Without parity a block is one piece on one path. With parity it is a stripe: data pieces and parity pieces
// of one size, one on every path. Piece i of a block lies on path (first path of the block + i) mod paths.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/swap_paths.h"

namespace headrace::swap {

// What every file system here is content with; a file that asks for more gets more.
inline constexpr Bytes default_extent_alignment = 4096;
inline constexpr std::size_t most_paths = 64;
inline constexpr std::uint32_t most_pins = 64;

// One version of one piece. All pieces of a block have its generation, and all lie in the same copy.
struct ExtentEntry {
  std::uint64_t offset = 0;
  std::uint64_t generation = 0;  // counts the block's versions; 0: never written
  std::uint32_t crc32c = 0;
  std::uint32_t path = 0;
  bool operator==(const ExtentEntry&) const = default;
};
using ExtentTable = std::vector<ExtentEntry>;  // the pieces of each block, data first

struct StripeShape {
  std::uint32_t paths = 1, parity = 0;
  Durability durability = Durability::step;
  Bytes alignment = default_extent_alignment;
  std::uint32_t pins = 0;  // with durability step: versions that may be kept beside the last two
  std::uint32_t pieces() const { return parity > 0 ? paths : 1; }
  std::uint32_t data_pieces() const { return parity > 0 ? paths - parity : 1; }
  std::uint32_t copies() const { return durability == Durability::step ? 2 + pins : 1; }
};

// The first path of each block: with parity they take turns; without, blocks are dealt in proportion to the
// rates (empty: all alike), so that neighbours lie on different paths (smooth weighted round robin, by
// bytes).
std::vector<std::uint32_t> place_blocks(const std::vector<SwapBlock>& blocks, const StripeShape& shape,
                                        const std::vector<double>& rates);

class StripeMap {
 public:
  StripeMap(const std::vector<SwapBlock>& blocks, const StripeShape& shape,
            std::vector<std::uint32_t> first_paths);
  const StripeShape& shape() const { return shape_; }
  std::uint32_t blocks() const { return static_cast<std::uint32_t>(first_paths_.size()); }
  std::uint32_t entries() const { return blocks() * shape_.pieces(); }  // of a table
  std::size_t entry(std::uint32_t block, std::uint32_t piece = 0) const {
    return std::size_t{block} * shape_.pieces() + piece;
  }
  std::uint32_t path_of(std::uint32_t block, std::uint32_t piece) const {
    return (first_paths_[block] + piece) % shape_.paths;
  }
  Bytes piece_bytes(std::uint32_t block) const { return piece_bytes_[block]; }
  Bytes largest_piece_bytes() const { return largest_piece_bytes_; }
  Bytes buffer_bytes(std::uint32_t block) const { return piece_bytes_[block] * shape_.data_pieces(); }
  // What the checksum of a piece covers: with parity all of it, else the block without its padding.
  Bytes checked_bytes(std::uint32_t block) const {
    return shape_.parity > 0 ? piece_bytes_[block] : block_bytes_[block];
  }
  Bytes file_bytes(std::uint32_t path) const { return region_bytes_[path] * shape_.copies(); }
  std::uint64_t offset(std::uint32_t block, std::uint32_t piece, std::uint32_t copy) const {
    return copy * region_bytes_[path_of(block, piece)] + starts_[block];
  }
  // Whether a table entry names an extent of the piece.
  bool is_extent_of(std::uint32_t block, std::uint32_t piece, const ExtentEntry& entry) const;
  // The first copy of the block that the version of none of these tables occupies. HEADRACE_CHECK fails when
  // all are in use; with one copy it is always that one.
  std::uint32_t free_copy(std::uint32_t block, std::span<const ExtentTable* const> reserved) const;

 private:
  StripeShape shape_;
  std::vector<std::uint32_t> first_paths_;
  std::vector<Bytes> block_bytes_, piece_bytes_;
  std::vector<std::uint64_t> starts_;  // of a block's piece in the first copy, the same on all its paths
  std::vector<Bytes> region_bytes_;    // of one copy of all pieces, a path
  Bytes largest_piece_bytes_ = 0;
};

}  // namespace headrace::swap
