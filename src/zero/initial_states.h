// The states that a run begins with: masters from a source of values, everything else zero.
#pragma once

#include "src/zero/context.h"

namespace headrace {

// Zero in every array of a block's states, in host memory and of kept_format.
void clear_states(StateFormat format, const StateArrays& states, std::uint64_t numel);
// `states` are in host memory and of kept_format; without a source the values are initial_values.
void fill_initial_states(const EngineContext& context, const OptimizerBlock& block, const StateArrays& states,
                         const Engine::ValueSource& values);

}  // namespace headrace
