// What memory allows an update, for benchmarks.
#pragma once

#include <span>

#include "cpu_adam/kernel_table.h"

namespace headrace {

// The loads and stores of optimizer_update_parallel with one addition for each array, through the same pool
// in the same pieces. The values mean nothing. Spans are multiples of 64 elements.
void update_ceiling_parallel(std::span<const GroupSpan> spans, Stores stores);

}  // namespace headrace
