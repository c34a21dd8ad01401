#include "gpu/finite_kernels.h"

#include <algorithm>

#include "gpu/element.cuh"

namespace headrace {
namespace {

constexpr int threads = 512, group = 16;

__device__ bool is_finite(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
}

// One block: its threads find their first such element each, and the lowest of all counts. Asked for where a
// run is about to end (src/zero/overflow_trace.h), so that it need not be quick.
template <class T>
__global__ void first_non_finite_kernel(const T* values, std::int64_t numel, std::uint64_t* first) {
  __shared__ std::int64_t lowest[threads];
  const int thread = static_cast<int>(threadIdx.x);
  std::int64_t i = thread;
  while (i < numel && is_finite(to_fp32(values[i]))) i += threads;
  lowest[thread] = i;
  __syncthreads();
  if (thread % group == 0)
    for (int k = 1; k < group; ++k) lowest[thread] = std::min(lowest[thread], lowest[thread + k]);
  __syncthreads();
  if (thread != 0) return;
  for (int k = group; k < threads; k += group) i = std::min(i, lowest[k]);
  i = std::min(i, lowest[0]);
  if (i < numel) *first = std::min(*first, static_cast<std::uint64_t>(i));
}

}  // namespace

void first_non_finite(KernelQueue& queue, const void* values, DType dtype, std::uint64_t numel,
                      std::uint64_t* first) {
  if (numel == 0) return;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    launch(queue, "first_non_finite", {.grid = 1, .block = threads}, first_non_finite_kernel<T>,
           static_cast<const T*>(values), static_cast<std::int64_t>(numel), first);
  });
}

}  // namespace headrace
