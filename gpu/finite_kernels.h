// DeviceKernels::first_non_finite (headrace/kernels.h) as a launch on one queue.
#pragma once

#include <cstdint>

#include "gpu/kernel_queue.h"
#include "headrace/dtype.h"

namespace headrace {

// `first` is device memory. Nothing is launched for 0 elements.
void first_non_finite(KernelQueue& queue, const void* values, DType dtype, std::uint64_t numel,
                      std::uint64_t* first);

}  // namespace headrace
