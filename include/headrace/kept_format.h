// The types in which an engine of these options keeps its states, and a checkpoint of it has them.
#pragma once

#include "headrace/engine_options.h"
#include "headrace/optimizer_state.h"

namespace headrace {

// With MasterDType::none the master is the parameters.
StateFormat kept_format(const EngineOptions& options);

}  // namespace headrace
