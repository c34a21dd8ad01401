// Counter-based initial values: element i of a parameter depends on (seed, name, i) alone, so that every
// shard of every world size starts from the same weights.
#pragma once

#include <cstdint>
#include <span>

#include "headrace/units.h"

namespace headrace {

// out[j] = initial value of element first + j: initial_mean + initial_std * standard normal (Box-Muller over
// SplitMix64 in double, rounded once).
void initial_values(const ParameterSpec& parameter, std::uint64_t seed, std::uint64_t first,
                    std::span<float> out);

}  // namespace headrace
