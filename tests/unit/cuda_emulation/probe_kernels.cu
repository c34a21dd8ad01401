#include "unit/cuda_emulation/probe_kernels.h"

#include <cstring>

#include "gpu/kernel_language.h"

namespace headrace::testing {
namespace {

constexpr unsigned whole_warp = ~0u;

__global__ void block_sums(unsigned* sums) {
  __shared__ unsigned of_warp[32];
  unsigned sum = threadIdx.x;
  // A lane that the last warp lacks brings nothing.
  const unsigned lanes = blockDim.x - threadIdx.x / 32 * 32 < 32 ? blockDim.x % 32 : 32;
  for (unsigned step = 16; step > 0; step /= 2) {
    const unsigned other = __shfl_down_sync(whole_warp, sum, step);
    if (threadIdx.x % 32 + step < lanes) sum += other;
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned total = 0;
    for (unsigned w = 0; w < (blockDim.x + 31) / 32; ++w) total += of_warp[w];
    sums[blockIdx.x] = total;
  }
}

__global__ void rotate(const unsigned* in, unsigned* out) {
  unsigned* const held = dynamic_shared<unsigned>();
  held[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = held[(threadIdx.x + 1) % blockDim.x];
}

__global__ void part_of_warp(int lanes, unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  if (lane >= static_cast<unsigned>(lanes)) return;
  const unsigned mask = lanes == 32 ? ~0u : (1u << lanes) - 1;
  out[threadIdx.x] = __shfl_sync(mask, lane * 10, lanes - 1);
}

__global__ void fill(int numel, float value, float* out) {
  for (std::int64_t i = first_item(); i < numel; i += item_step()) out[i] = value;
}
__global__ void add(int numel, const float* in, float* out) {
  for (std::int64_t i = first_item(); i < numel; i += item_step()) out[i] += in[i];
}
__global__ void touch(long offset, float* memory) {
  memory[offset] = 1.0f;
}

__global__ void barrier_of_half_a_block() {
  if (threadIdx.x < 32) __syncthreads();
  if (threadIdx.x >= 32) __shfl_sync(whole_warp, threadIdx.x, threadIdx.x == 40 ? 0 : 1);
  if (threadIdx.x == 63) return;
  __syncwarp(threadIdx.x < 32 ? 1u << threadIdx.x : 0xffffffffu);
}
__global__ void shuffle_with_lanes_that_left() {
  if (threadIdx.x >= 16) return;
  __shfl_sync(whole_warp, threadIdx.x, 0);
}
__global__ void shuffle_from_lacking_lane(unsigned* out) {
  const unsigned value = __shfl_sync(whole_warp, threadIdx.x, 8);
  if (threadIdx.x == 0) *out = value;
}
__global__ void idle() {}
__global__ void last_lane(int* last) {
  *last = static_cast<int>(threadIdx.x);
}
__global__ void shared_overrun() {
  dynamic_shared<float>()[threadIdx.x + 32] = 1.0f;
}

class Queue final : public KernelQueue {
 public:
  explicit Queue(cudaStream_t stream) : stream_(stream) {}
  bool active() const override { return true; }
  cudaStream_t stream() const override { return stream_; }
  void launching(const char*) override {}
  void launched(const char*) override {}

 private:
  cudaStream_t stream_;
};

template <class... Arguments>
void run(cudaStream_t stream, const char* name, LaunchShape shape, Arguments... arguments) {
  Queue queue(stream);
  launch(queue, name, shape, arguments...);
}

}  // namespace

void launch_block_sums(cudaStream_t stream, int blocks, int threads, unsigned* sums) {
  run(stream, "block_sums", {static_cast<unsigned>(blocks), static_cast<unsigned>(threads)}, block_sums,
      sums);
}
void launch_rotate(cudaStream_t stream, int threads, const unsigned* in, unsigned* out) {
  run(stream, "rotate", {1, static_cast<unsigned>(threads), threads * sizeof(unsigned)}, rotate, in, out);
}
void launch_part_of_warp(cudaStream_t stream, int lanes, unsigned* out) {
  run(stream, "part_of_warp", {1, 64}, part_of_warp, lanes, out);
}
void launch_fill(cudaStream_t stream, int numel, float value, float* out) {
  run(stream, "fill", {3, 32}, fill, numel, value, out);
}
void launch_add(cudaStream_t stream, int numel, const float* in, float* out) {
  run(stream, "add", {3, 32}, add, numel, in, out);
}
void launch_touch(cudaStream_t stream, long offset, float* memory) {
  run(stream, "touch", {1, 1}, touch, offset, memory);
}
void launch_barrier_of_half_a_block(cudaStream_t stream) {
  run(stream, "half", {1, 64}, barrier_of_half_a_block);
}
void launch_shuffle_with_lanes_that_left(cudaStream_t stream) {
  run(stream, "left", {1, 32}, shuffle_with_lanes_that_left);
}
void launch_shuffle_from_lacking_lane(cudaStream_t stream, unsigned* out) {
  run(stream, "lacking", {1, 8}, shuffle_from_lacking_lane, out);
}
void launch_idle(cudaStream_t stream, dim3 grid, dim3 block) {
  run(stream, "idle", {grid, block}, idle);
}
void launch_last_lane(cudaStream_t stream, int* last) {
  run(stream, "last_lane", {1, 32}, last_lane, last);
}
void launch_shared_overrun(cudaStream_t stream) {
  run(stream, "overrun", {1, 32, 128}, shared_overrun);
}

void host_fill(float* memory, int numel, float value) {
  for (int i = 0; i < numel; ++i) memory[i] = value;
}
void host_zero(float* memory, std::size_t numel) {
  std::memset(memory, 0, numel * sizeof(float));
}
void host_copy(const float* memory, std::size_t numel, float* to) {
  std::memcpy(to, memory, numel * sizeof(float));
}
float host_sum(const float* memory, int numel) {
  float sum = 0;
  for (int i = 0; i < numel; ++i) sum += memory[i];
  return sum;
}

}  // namespace headrace::testing
