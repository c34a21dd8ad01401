// Where a transfer of any alignment is cut for a direct file: the parts that the device can move to and from
// the caller's memory itself, and those that need a copy. Pure arithmetic.
#pragma once

#include <cstdint>

#include "headrace/bytes.h"

namespace headrace::aio {

// Of a direct file; blocks are `offset` bytes, requests need memory at multiples of `memory`.
struct FileAlignment {
  std::uint32_t memory = 1, offset = 1;
};

// head + middle + tail are the bytes of the transfer, in this order. Head and tail lie in one block each, of
// which they cover a part; the middle is whole blocks.
struct AlignedParts {
  Bytes head = 0, middle = 0, tail = 0;
  bool middle_bounced = false;  // its memory is not aligned when its blocks are
  bool operator==(const AlignedParts&) const = default;
};

AlignedParts cut_at_blocks(std::uint64_t offset, Bytes bytes, std::uintptr_t address, FileAlignment file);

}  // namespace headrace::aio
