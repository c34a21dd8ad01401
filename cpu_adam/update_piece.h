// One update of any span through kernels that take whole tiles: what both the calling thread's update and the
// pool's run for each of their pieces.
#pragma once

#include "cpu_adam/kernel_table.h"

namespace headrace {

// Throws UsageError where the states are not those of the arguments' optimizer, or of types without meaning.
void require_meaning(const UpdateSpan& span, const OptimizerArguments& arguments);

// On the calling thread. With Stores::streaming, 16-bit parameters are written past the caches wherever they
// fill cache lines.
void update_piece(const KernelTable& kernels, const UpdateSpan& span, const UpdateConstants& constants,
                  Stores stores = Stores::cached);

}  // namespace headrace
