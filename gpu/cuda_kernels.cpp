// DeviceKernels of the CUDA device: each call is one launch on the stream of its lane.
#include "gpu/cuda_device.h"
#include "gpu/finite_kernels.h"
#include "gpu/optimizer_kernels.h"
#include "gpu/update_kernels.h"
#include "headrace/errors.h"
#include "headrace/kernels.h"

namespace headrace {
namespace {

class CudaKernels final : public DeviceKernels {
 public:
  explicit CudaKernels(CudaDevice& device) : device_(device) {}

  void sum_slices(Lane lane, std::span<const void* const> slices, DType dtype, std::uint64_t numel,
                  float* sum, bool accumulate) override {
    if (slices.size() > most_slices)
      throw UsageError(fmt::format("a sum over {} ranks; the CUDA backend adds at most {}. Use fewer ranks.",
                                   slices.size(), most_slices));
    headrace::sum_slices(device_.queue(lane), slices, dtype, numel, sum, accumulate);
  }

  void round_and_norm(Lane lane, const float* sum, void* rounded, DType dtype, std::uint64_t numel,
                      double* partials) override {
    headrace::round_and_norm(device_.queue(lane), sum, rounded, dtype, numel, partials);
  }

  void update(Lane lane, const UpdateSpan& span, const OptimizerArguments& arguments) override {
    require_meaning(span, arguments);
    headrace::update(device_.queue(lane), span, constants_of(arguments));
  }

  void first_non_finite(Lane lane, const void* values, DType dtype, std::uint64_t numel,
                        std::uint64_t* first) override {
    headrace::first_non_finite(device_.queue(lane), values, dtype, numel, first);
  }

  void round_to(Lane lane, const float* high, void* low, DType dtype, std::uint64_t numel) override {
    headrace::round_to(device_.queue(lane), high, low, dtype, numel);
  }

 private:
  CudaDevice& device_;
};

}  // namespace

std::unique_ptr<DeviceKernels> make_cuda_kernels(Device& device) {
  return std::make_unique<CudaKernels>(cuda_device(device));
}

}  // namespace headrace
