// Puts a function in the place of the host's update: for benchmarks of the pipeline around it. What such an
// engine commits is no training, so this is no option of the engine: `headrace tune` alone includes it.
#pragma once

#include <functional>

#include "headrace/engine.h"

namespace headrace {

class UpdateOverride {
 public:
  // Elements that share hyper-parameters; called by the owner thread.
  using Update = std::function<void(const UpdateSpan&, const OptimizerArguments&)>;
  // Before initialise or resume; the optimizer's states are not on the device.
  static void set(Engine& engine, Update update);
};

}  // namespace headrace
