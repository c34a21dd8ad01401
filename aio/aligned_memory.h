// Memory for direct I/O that is not the caller's.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "headrace/bytes.h"

namespace headrace::aio {

struct FreeAligned {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeAligned>;

// Throws std::bad_alloc.
inline AlignedMemory allocate_aligned(Bytes bytes, Bytes alignment) {
  AlignedMemory memory(static_cast<std::byte*>(std::aligned_alloc(alignment, round_up(bytes, alignment))));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace headrace::aio
