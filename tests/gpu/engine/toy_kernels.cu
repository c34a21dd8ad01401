#include "tests/gpu/engine/toy_kernels.h"

#include "gpu/cuda_device.h"
#include "gpu/element.cuh"
#include "gpu/kernel_language.h"

namespace headrace::testing {
namespace {

constexpr unsigned threads = 128;

template <class T>
__global__ void toy_read(const T* parameters, std::int64_t numel) {
  volatile float sink = 0;
  for (std::int64_t i = first_item(); i < numel; i += item_step()) sink = sink + to_fp32(parameters[i]);
}

struct ToyPlace {
  std::uint64_t first, sample, step, unit, poisoned;
  float gain;
};

template <class T>
__global__ void toy_gradient(const T* parameters, T* gradient, std::int64_t numel, ToyPlace at) {
  for (std::int64_t i = first_item(); i < numel; i += item_step()) {
    const auto index = static_cast<std::uint64_t>(i);
    const float difference =
        to_fp32(parameters[i]) - toy_target(at.sample, at.step, at.unit, at.first + index);
    gradient[i] = from_fp32<T>(index == at.poisoned ? INFINITY : at.gain * difference);
  }
}

class CudaToyCompute final : public ToyCompute {
 public:
  void read(Device& device, const std::byte* parameters, std::uint64_t numel, DType dtype) override {
    KernelQueue& queue = cuda_device(device).queue(Lane::compute);
    const auto count = static_cast<std::int64_t>(numel);
    with_element(dtype, [&]<class T>(T) {
      launch(queue, "toy forward", {grid_blocks(count, threads), threads}, toy_read<T>,
             reinterpret_cast<const T*>(parameters), count);
    });
  }
  void gradient(Device& device, const ToyGradient& g) override {
    KernelQueue& queue = cuda_device(device).queue(Lane::compute);
    const auto count = static_cast<std::int64_t>(g.numel);
    const ToyPlace at{g.first, g.sample, g.step, g.unit, g.poisoned, g.gain};
    with_element(g.dtype, [&]<class T>(T) {
      launch(queue, "toy backward", {grid_blocks(count, threads), threads}, toy_gradient<T>,
             reinterpret_cast<const T*>(g.parameters), reinterpret_cast<T*>(g.gradient), count, at);
    });
  }
};

}  // namespace

ToyCompute& cuda_toy_compute() {
  static CudaToyCompute compute;
  return compute;
}

}  // namespace headrace::testing
