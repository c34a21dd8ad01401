// The words of CUDA C++ that a C++ compiler lacks, for kernels (*.cu) that run on the CPU. Included before
// everything else in each of them; the kernels themselves include CUDA's own headers.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "support/cuda_emulation/block.h"
#include "support/cuda_emulation/launch.h"

#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)

#define threadIdx (cuda_emulation::block().thread_index())
#define blockIdx (cuda_emulation::block().index)
#define blockDim (cuda_emulation::block().dimensions)
#define gridDim (cuda_emulation::block().grid)

inline void __syncthreads() {
  cuda_emulation::block().wait_for_block();
}
inline void __syncwarp(unsigned mask = ~0u) {
  cuda_emulation::block().wait_for_warp(mask);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = cuda_emulation::block().lane();
  return cuda_emulation::block().shuffle(mask, value, lane / width * width + source % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int lane = cuda_emulation::block().lane(), source = lane ^ lane_mask;
  return cuda_emulation::block().shuffle(mask, value, source / width == lane / width ? source : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = cuda_emulation::block().lane(), source = lane + static_cast<int>(delta);
  return cuda_emulation::block().shuffle(mask, value, source / width == lane / width ? source : lane);
}
inline void __threadfence_system() {
  asm volatile("mfence" ::: "memory");
}
