// The launches of DeviceKernels (headrace/kernels.h), each on one queue. Pointers are device memory of any
// alignment of their element type; the bits do not depend on it. Nothing is launched for 0 elements.
#pragma once

#include <cstdint>
#include <span>

#include "gpu/kernel_queue.h"
#include "headrace/dtype.h"

namespace headrace {

// Slices of one sum: their addresses travel as kernel parameters, which hold this many.
inline constexpr std::size_t most_slices = 500;

// At most most_slices slices. `sum` may be one of them.
void sum_slices(KernelQueue& queue, std::span<const void* const> slices, DType dtype, std::uint64_t numel,
                float* sum, bool accumulate);
// `partials` is device memory. The order of its sums is [Note: order of a squared norm] of
// cpu_adam/sums_body.h.
void round_and_norm(KernelQueue& queue, const float* sum, void* rounded, DType dtype, std::uint64_t numel,
                    double* partials);
void round_to(KernelQueue& queue, const float* high, void* low, DType dtype, std::uint64_t numel);

}  // namespace headrace
