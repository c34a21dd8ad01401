// Whether a case's update gives the bits of the scalar kernel.
#pragma once

#include <span>

#include "src/bench/update_tensors.h"

namespace headrace {

// Of blocks that were filled and since then updated once, as they are and by the stores that their size
// chooses: pieces of up to 12 of them, among them the first and the last, each at its begin, middle and end.
bool has_scalar_bits(const UpdateCase& one, std::span<const GroupSpan> updated);

}  // namespace headrace
