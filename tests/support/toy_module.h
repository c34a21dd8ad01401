// A module with known arithmetic for engine tests: the "loss" of element i is (p - target)^2 / 2 with a
// target that depends on (rank, micro-batch, step, unit, element), so any wrong, stale or missing parameter
// or gradient changes the result.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/engine.h"
#include "tests/support/toy_compute.h"

namespace headrace::testing {

struct ToyModule {
  std::vector<UnitSpec> specs;
  std::vector<UnitId> units;
  DType dtype = DType::bf16;
  float gradient_gain = 1.0f;  // scales every gradient: makes clipping active or not
  float loss_scale = 1.0f;     // and so does this
  bool poison_unit_1 = false;  // this rank's gradient of unit 1 is infinite
  std::vector<bool> silent;    // units that give no gradient
  std::vector<bool> skipped;   // units that the forward leaves out
  ToyCompute* compute = &host_toy_compute();

  // Registers the units.
  void attach(Engine& engine);
  // Enqueues forward and backward of one micro-batch.
  void run(Engine& engine, Device& device, int sample, std::uint64_t step);

 private:
  void backward(Engine& engine, Device& device, std::size_t unit_index, std::uint64_t sample,
                std::uint64_t step);
};

// Odd sizes, a 0-element parameter, units smaller than the world, sizes past one norm chunk and one block.
std::vector<UnitSpec> awkward_units();

}  // namespace headrace::testing
