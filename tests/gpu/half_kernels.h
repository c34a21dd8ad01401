// What no operation does yet: conversions of half precision, launched on their own.
#pragma once

#include <cstdint>

#include "gpu/kernel_queue.h"

namespace headrace::test {

// Half-precision values as their bits.
void halves_of(KernelQueue& queue, const float* x, std::uint16_t* halves, std::int64_t numel);
void floats_of(KernelQueue& queue, const std::uint16_t* halves, float* x, std::int64_t numel);

}  // namespace headrace::test
