// Memory of reads that are in flight together, given back in the order in which it was taken. A part lies at
// an address that is aligned as its offset in the file is, so that a direct read needs no copy but of its
// ends.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "headrace/bytes.h"

namespace headrace {

class ReadRing {
 public:
  explicit ReadRing(std::span<std::byte> memory) : memory_(memory) {}  // page-aligned

  // What a part of so many bytes takes at most, wherever it is in its file.
  static Bytes most_bytes_of(Bytes bytes);

  struct Part {
    Bytes bytes = 0, offset = 0;  // in its file
  };
  // For the parts together; nothing where there is no room, which an empty ring of the sum of their
  // most_bytes_of has.
  std::optional<std::vector<std::span<std::byte>>> take(std::span<const Part> parts);
  void give_back_oldest();

 private:
  struct Region {
    Bytes begin = 0, end = 0;
  };
  std::optional<Bytes> place(Bytes bytes) const;
  std::span<std::byte> memory_;
  std::deque<Region> taken_;
};

}  // namespace headrace
