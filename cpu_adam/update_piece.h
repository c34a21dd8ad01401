// One update of any span through kernels that take whole tiles: what both the calling thread's update and the
// pool's run for each of their pieces.
#pragma once

#include "cpu_adam/kernel_table.h"

namespace headrace {

// Writing 16-bit parameters past the caches pays once an update's arrays outgrow them, and costs until then
// (measured at 28 bytes an element: even at 2^21 elements, a tenth faster from 2^22 on).
constexpr Stores stores_for(std::uint64_t update_numel) {
  return update_numel >= std::uint64_t{1} << 21 ? Stores::streaming : Stores::cached;
}

// On the calling thread. With Stores::streaming, 16-bit parameters are written past the caches wherever they
// fill cache lines.
void update_piece(const KernelTable& kernels, const UpdateSpan& span, const UpdateConstants& constants,
                  Stores stores);

}  // namespace headrace
