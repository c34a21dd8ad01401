// What generating takes of the device, before anything is loaded.
#pragma once

#include "headrace/generate.h"
#include "headrace/inference.h"

namespace headrace {

// Its fields of sizes. DoesNotFit with these and with what would fit, where there is less than that.
GenerateReport memory_needed(const ModelConfig& config, const InferenceOptions& shape,
                             const GenerateOptions& options);

}  // namespace headrace
