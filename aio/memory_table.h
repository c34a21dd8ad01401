// Which places of a ring's table of memory hold which addresses. Pure bookkeeping: the owner serialises the
// calls, and tells the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "aio/io_path.h"

namespace headrace::aio {

// Pieces of a region, of at most `max_bytes`. The kernel takes a huge page for one piece of memory, and
// builds larger requests to the disk, where all pages of a piece are of one size: what is not whole huge
// pages, at both ends, is a piece of its own (it reaches into the next, for the requests across the border).
std::vector<std::span<std::byte>> cut_region(std::span<std::byte> memory, Bytes max_bytes);

class MemoryTable {
 public:
  MemoryTable(std::uint32_t places, Bytes max_bytes);

  struct Piece {
    std::uint32_t place = 0;
    std::span<std::byte> memory;
  };
  // Takes places for as many pieces as there are places for.
  std::vector<Piece> take(std::span<std::byte> memory);
  // From now on find() finds the piece.
  void publish(RegionId region, const Piece& piece);
  // The pieces of a region are found no more; the places stay taken until give_back.
  std::vector<std::uint32_t> withdraw(RegionId region);
  void give_back(std::uint32_t place) { free_.push_back(place); }

  // The place that holds all of [address, address + bytes).
  std::optional<std::uint32_t> find(const std::byte* address, Bytes bytes) const;

 private:
  struct Known {
    RegionId region;
    Piece piece;
  };
  const Bytes max_bytes_;
  std::vector<std::uint32_t> free_;
  std::multimap<std::uintptr_t, Known> known_;  // by first address
};

}  // namespace headrace::aio
