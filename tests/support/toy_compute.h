// The arithmetic of a toy module (toy_module.h) and where it runs. nvcc compiles this file, so it includes no
// part of the engine.
#pragma once

#include <cstdint>

#include "headrace/device.h"
#include "headrace/dtype.h"
#include "headrace/state_hash.h"

namespace headrace::testing {

// The target of one element.
constexpr float toy_target(std::uint64_t sample, std::uint64_t step, std::uint64_t unit,
                           std::uint64_t element) {
  const std::uint64_t bits = splitmix64(splitmix64(sample * 1000003 + step * 7919 + unit * 104729) + element);
  return static_cast<float>(bits >> 40) * 0x1.0p-24f - 0.5f;
}

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

}  // namespace headrace::testing
