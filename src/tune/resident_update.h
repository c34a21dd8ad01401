// The compute of the closed form: one block's update with everything in memory.
#pragma once

#include "headrace/tune.h"

namespace headrace::tune {

// Seconds that the host's update takes for one block of `numel` elements, states in memory but in no cache:
// the median over as many blocks as `budget_seconds` allow, at least three. Takes 64 MiB, or `memory_limit`
// if that is less, but a block at least.
double resident_update_seconds(const StateFormat& states, std::uint64_t numel, double budget_seconds,
                               Bytes memory_limit = ~Bytes{0});

}  // namespace headrace::tune
