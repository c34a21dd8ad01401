// The whole training run of tests/support/toy_module.h computed the plain way: one process, whole arrays,
// scalar loops, no engine. What the engine must equal bit by bit.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/engine_harness.h"

namespace headrace::testing {

struct OracleResult {
  std::uint64_t hash = 0;
  std::vector<double> gradient_norms;
  std::vector<double> scales;  // loss scale after each step
  int clipped_steps = 0, skipped_steps = 0;
};
OracleResult run_oracle(const EngineRun& run);

}  // namespace headrace::testing
