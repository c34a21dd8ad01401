// Kernels that do right and wrong things on purpose, launched on a stream of their own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace headrace::testing {

// sums[b] = 0 + 1 + ... of the `threads` of block b, through shuffles and shared memory.
void launch_block_sums(cudaStream_t stream, int blocks, int threads, unsigned* sums);
// out[i] = in[(i + 1) % threads] by way of dynamic shared memory.
void launch_rotate(cudaStream_t stream, int threads, const unsigned* in, unsigned* out);
// Shuffles among the lower `lanes` of each warp only.
void launch_part_of_warp(cudaStream_t stream, int lanes, unsigned* out);
void launch_fill(cudaStream_t stream, int numel, float value, float* out);
void launch_add(cudaStream_t stream, int numel, const float* in, float* out);  // out += in
void launch_touch(cudaStream_t stream, long offset, float* memory);            // memory[offset] = 1

void launch_barrier_of_half_a_block(cudaStream_t stream);
void launch_shuffle_with_lanes_that_left(cudaStream_t stream);
void launch_shuffle_from_lacking_lane(cudaStream_t stream,
                                      unsigned* out);  // of lane 8 in a block of 8 threads
void launch_idle(cudaStream_t stream, dim3 grid, dim3 block);
void launch_last_lane(cudaStream_t stream, int* last);  // of a warp, in which every lane stores its number
void launch_shared_overrun(cudaStream_t stream);

// Host code whose loads and stores are seen.
void host_fill(float* memory, int numel, float value);
float host_sum(const float* memory, int numel);
void host_zero(float* memory, std::size_t numel);                   // by memset
void host_copy(const float* memory, std::size_t numel, float* to);  // by memcpy

}  // namespace headrace::testing
