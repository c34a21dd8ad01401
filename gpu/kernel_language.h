// What kernels are written in: CUDA C++, plus the few words that nvcc and the tests' emulation spell
// differently. Included by *.cu files alone.
//
//   dynamic_shared<T>()      the block's dynamic shared memory, 16-byte aligned
//   launch(queue, name, shape, kernel, arguments...)
//
// An argument is a value, a device pointer, or a struct. A struct that holds pointers says so, because the
// emulation checks and translates each: it has a member `template <class Visit> void pointers(Visit visit)`
// that calls visit(pointer&) for every one of them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu/kernel_queue.h"

namespace headrace {

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  // dynamic
};

#if defined(__CUDACC__)

template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char headrace_shared[];
  return reinterpret_cast<T*>(headrace_shared);
}

namespace detail {
template <class... Parameters>
void start(const char*, const LaunchShape& shape, cudaStream_t stream, void (*kernel)(Parameters...),
           Parameters... arguments) {
  kernel<<<shape.grid, shape.block, shape.shared_bytes, stream>>>(arguments...);
}
}  // namespace detail

#else  // the tests' emulation, whose words are included before this file

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(cuda_emulation::dynamic_shared());
}

namespace detail {
template <class... Parameters>
void start(const char* name, const LaunchShape& shape, cudaStream_t stream, void (*kernel)(Parameters...),
           Parameters... arguments) {
  cuda_emulation::launch(name, shape.grid, shape.block, shape.shared_bytes, stream, kernel, arguments...);
}
}  // namespace detail

#endif

// Enqueues the kernel; nothing for an empty grid. Shared memory beyond 48 KiB is asked for.
template <class... Parameters, class... Arguments>
void launch(KernelQueue& queue, const char* name, const LaunchShape& shape, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  if (!queue.active() || shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  queue.launching(name);
  constexpr std::size_t default_limit = 48 << 10;
  if (shape.shared_bytes > default_limit)  // a refusal is the launch's too
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shape.shared_bytes));
  detail::start<Parameters...>(name, shape, queue.stream(), kernel, static_cast<Parameters>(arguments)...);
  queue.launched(name);
}

// Blocks of a grid-stride loop over `count` items, `threads` a block: enough to fill any device, and never so
// many that the grid's size would depend on it.
inline unsigned grid_blocks(std::int64_t count, unsigned threads) {
  constexpr std::int64_t most = 4096;
  const std::int64_t wanted = (count + threads - 1) / threads;
  return static_cast<unsigned>(wanted < most ? wanted : most);
}

// First item and step of a grid-stride loop: for (i = first_item(); i < count; i += item_step()).
__device__ inline std::int64_t first_item() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t item_step() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace headrace
