// Puts a function in the place of the host's update: for benchmarks of the pipeline around it. What such an
// engine commits is no training, so this is no option of the engine: `headrace tune` alone includes it.
#pragma once

#include <functional>

#include "headrace/engine.h"

namespace headrace {

class UpdateOverride {
 public:
  // Called by the owner thread with what optimizer_update_parallel would be.
  using Update = std::function<void(std::span<const GroupSpan> spans,
                                    std::span<const OptimizerArguments> groups, std::uint64_t update_numel)>;
  // Before initialise or resume; the optimizer's states are not on the device.
  static void set(Engine& engine, Update update);
};

}  // namespace headrace
