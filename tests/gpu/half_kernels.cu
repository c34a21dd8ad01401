#include "tests/gpu/half_kernels.h"

#include "gpu/each_element.cuh"

namespace headrace::test {
void halves_of(KernelQueue& queue, const float* x, std::uint16_t* halves, std::int64_t numel) {
  for_each_element(queue, "halves", Convert<float, __half>{x, reinterpret_cast<__half*>(halves)}, numel);
}

void floats_of(KernelQueue& queue, const std::uint16_t* halves, float* x, std::int64_t numel) {
  for_each_element(queue, "floats", Convert<__half, float>{reinterpret_cast<const __half*>(halves), x},
                   numel);
}

}  // namespace headrace::test
