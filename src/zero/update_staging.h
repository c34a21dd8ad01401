// What an update needs beside the states, given where things live: which blocks it takes together, and the
// buffers through which gradients and parameters come and go. The engine and the planner size it here; how
// many blocks host memory has buffers for, the planner tells the engine
// (EngineOptions::update_region_blocks).
#pragma once

#include <span>

#include "src/zero/context.h"

namespace headrace {

struct UpdateStaging {
  bool on_device = false;        // where the update runs, and where the buffers are
  bool move_gradient = false;    // gradients live on the other side
  bool move_parameters = false;  // the low-precision parameters of some unit live on the other side
  // Neighbours that are updated in one parallel region: all where host memory holds everything that they
  // need. Where something moves, as many as keep every thread of several nodes at work beside what moves, and
  // as the options allow. 1 on the device, where each is a launch, and where something comes from NVMe.
  std::uint32_t region_blocks = 1;
  std::uint32_t buffers = 2;  // of each kind that moves: those of a region in use, as many moving
  Bytes buffer_bytes = 0;     // of one block in the parameters' dtype
  Bytes visit_bytes = 0;      // host buffer through which device states are filled and read
  bool moves() const { return move_gradient || move_parameters; }
  Bytes total_bytes() const {
    return buffer_bytes * buffers * (Bytes{move_gradient} + Bytes{move_parameters});
  }
};
UpdateStaging plan_staging(const std::vector<UnitPlan>& units, std::span<const OptimizerBlock> blocks,
                           const EngineOptions& options, const ResolvedPlacement& placement);

}  // namespace headrace
