// A module with known arithmetic for engine tests: the "loss" of element i is (p - target)^2 / 2 with a
// target that depends on (rank, micro-batch, step, unit, element), so any wrong, stale or missing parameter
// or gradient changes the result.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/engine.h"
#include "headrace/state_hash.h"

namespace headrace::testing {

// One parameter's part of the backward: gradient[i] = gain * (parameters[i] - target of element first + i),
// for i < numel, rounded to `dtype`; element `poisoned` becomes infinite.
struct ToyGradient {
  const std::byte* parameters = nullptr;
  std::byte* gradient = nullptr;
  DType dtype = DType::bf16;
  std::uint64_t first = 0, numel = 0;  // within the unit's flat vector
  std::uint64_t sample = 0, step = 0, unit = 0;
  float gain = 1.0f;
  std::uint64_t poisoned = ~std::uint64_t{0};  // within the parameter
};

// Where the arithmetic of a toy module runs; enqueues on the compute lane.
class ToyCompute {
 public:
  virtual ~ToyCompute() = default;
  virtual void read(Device& device, const std::byte* parameters, std::uint64_t numel, DType dtype) = 0;
  virtual void gradient(Device& device, const ToyGradient& arguments) = 0;
};
ToyCompute& host_toy_compute();  // for devices that the host addresses

struct ToyModule {
  std::vector<UnitSpec> specs;
  std::vector<UnitId> units;
  DType dtype = DType::bf16;
  float gradient_gain = 1.0f;  // scales every gradient: makes clipping active or not
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

// The target of one element.
constexpr float toy_target(std::uint64_t sample, std::uint64_t step, std::uint64_t unit,
                           std::uint64_t element) {
  const std::uint64_t bits = splitmix64(splitmix64(sample * 1000003 + step * 7919 + unit * 104729) + element);
  return static_cast<float>(bits >> 40) * 0x1.0p-24f - 0.5f;
}

// Odd sizes, a 0-element parameter, units smaller than the world, sizes past one norm chunk and one block.
std::vector<UnitSpec> awkward_units();

}  // namespace headrace::testing
