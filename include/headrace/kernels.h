// Kernels that the engine itself needs on a device: gradient summation, rounding, norms, the optimizer
// update. They are enqueued on a lane and read and write device memory. The arithmetic is DESIGN section 9's;
// every implementation gives the same bits.
#pragma once

#include <cstdint>
#include <memory>

#include "headrace/device.h"
#include "headrace/dtype.h"
#include "headrace/optimizer_update.h"

namespace headrace {

// Elements covered by one fp64 partial of a squared norm, counted from a unit's start; shard and block
// borders lie on it.
inline constexpr std::uint64_t norm_chunk_numel = 4096;

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // For i < numel: s = slice_0[i] + slice_1[i] + ... (fp32, in slice order); sum[i] = accumulate ? sum[i] + s
  // : s. slice_r starts at slices[r]; the array itself is copied by the call.
  virtual void sum_slices(Lane lane, std::span<const void* const> slices, DType dtype, std::uint64_t numel,
                          float* sum, bool accumulate) = 0;

  // rounded[i] = sum[i] in `dtype` (once, to nearest even; `rounded` may alias `sum` when dtype is f32), and
  // partials[c] = sum over chunk c of double(rounded[i])^2 in fixed lane order; `numel` starts on a chunk
  // border. `partials` is device memory, like all of these.
  virtual void round_and_norm(Lane lane, const float* sum, void* rounded, DType dtype, std::uint64_t numel,
                              double* partials) = 0;

  // One optimizer block (optimizer_update.h). Throws UsageError, before anything is enqueued, where span and
  // arguments do not belong together or have no meaning.
  virtual void update(Lane lane, const UpdateSpan& span, const OptimizerArguments& arguments) = 0;

  // *first = the smaller of it and the number of the first element that is infinite or NaN (finite.h).
  virtual void first_non_finite(Lane lane, const void* values, DType dtype, std::uint64_t numel,
                                std::uint64_t* first) = 0;

  // low[i] = high[i] rounded to `dtype`.
  virtual void round_to(Lane lane, const float* high, void* low, DType dtype, std::uint64_t numel) = 0;
};
std::unique_ptr<DeviceKernels> make_cpu_kernels(Device& device);
// `device` is make_cuda_device's. Throws UsageError saying how to get it when built without CUDA.
std::unique_ptr<DeviceKernels> make_cuda_kernels(Device& device);

}  // namespace headrace
