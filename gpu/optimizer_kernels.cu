#include "gpu/optimizer_kernels.h"

#include <cmath>

#include "gpu/each_element.cuh"
#include "headrace/kernels.h"

namespace headrace {
namespace {

// ---- Sums over ranks

template <class T, int most>
struct SumSlices {
  static constexpr int vector_numel = vector_numel_of<T, float>;
  const T* slices[most];
  int count;
  float* sum;
  bool accumulate;

  // Every load precedes the stores, so `sum` may be one of the slices.
  template <int n>
  __device__ void run(std::int64_t i) const {
    Floats<n> total = count == 0 ? all<n>(0.0f) : load<n>(slices[0] + i);
#pragma unroll 4
    for (int r = 1; r < count; ++r) {
      const Floats<n> slice = load<n>(slices[r] + i);
      for (int k = 0; k < n; ++k) total[k] = total[k] + slice[k];
    }
    if (accumulate) {
      const Floats<n> before = load<n>(sum + i);
      for (int k = 0; k < n; ++k) total[k] = before[k] + total[k];
    }
    store<n>(sum + i, total);
  }
  template <class Visit>
  void pointers(Visit visit) {
    for (int r = 0; r < count; ++r) visit(slices[r]);
    visit(sum);
  }
};

template <class T, int most>
void sum_slices_of(KernelQueue& queue, std::span<const void* const> slices, std::uint64_t numel, float* sum,
                   bool accumulate) {
  SumSlices<T, most> pass{
      .slices = {}, .count = static_cast<int>(slices.size()), .sum = sum, .accumulate = accumulate};
  for (std::size_t r = 0; r < slices.size(); ++r) pass.slices[r] = static_cast<const T*>(slices[r]);
  for_each_element(queue, "sum_slices", pass, static_cast<std::int64_t>(numel));
}

// ---- Rounding and norms

constexpr int warp_threads = 32;  // norm_lanes of cpu_adam/sums_body.h
constexpr std::int64_t chunk_numel = norm_chunk_numel;

// Elements at i, i + warp_threads, ...: `count` of them, all loaded before the first is stored.
template <int count, class T>
__device__ void round_and_square(const float* sum, T* rounded, std::int64_t i, double& squares) {
  float x[count];
  for (int k = 0; k < count; ++k) x[k] = sum[i + k * warp_threads];
  for (int k = 0; k < count; ++k) {
    const T low = from_fp32<T>(x[k]);
    rounded[i + k * warp_threads] = low;
    const double wide = static_cast<double>(to_fp32(low));
    squares = fma(wide, wide, squares);
  }
}

// A warp takes a chunk in the order of [Note: order of a squared norm] of cpu_adam/sums_body.h.
template <class T>
__global__ void __launch_bounds__(256)
    round_and_norm_chunks(const float* sum, T* rounded, std::int64_t numel, double* partials) {
  constexpr int at_once = 8;
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const std::int64_t warps = item_step() / warp_threads, chunks = (numel + chunk_numel - 1) / chunk_numel;
  for (std::int64_t chunk = first_item() / warp_threads; chunk < chunks; chunk += warps) {
    const std::int64_t begin = chunk * chunk_numel;
    const std::int64_t end = numel - begin < chunk_numel ? numel : begin + chunk_numel;
    double squares = 0;
    std::int64_t i = begin + lane;
    for (; i + (at_once - 1) * warp_threads < end; i += at_once * warp_threads)
      round_and_square<at_once>(sum, rounded, i, squares);
    for (; i < end; i += warp_threads) round_and_square<1>(sum, rounded, i, squares);
    for (int half = warp_threads / 2; half > 0; half /= 2) squares += __shfl_down_sync(~0u, squares, half);
    if (lane == 0) partials[chunk] = squares;
  }
}

}  // namespace

void sum_slices(KernelQueue& queue, std::span<const void* const> slices, DType dtype, std::uint64_t numel,
                float* sum, bool accumulate) {
  constexpr std::size_t few = 32;  // what most jobs have, in a parameter of 300 bytes
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    if (slices.size() <= few)
      sum_slices_of<T, few>(queue, slices, numel, sum, accumulate);
    else
      sum_slices_of<T, most_slices>(queue, slices, numel, sum, accumulate);
  });
}

void round_and_norm(KernelQueue& queue, const float* sum, void* rounded, DType dtype, std::uint64_t numel,
                    double* partials) {
  constexpr unsigned threads = 256;
  const auto count = static_cast<std::int64_t>(numel);
  const std::int64_t chunks = (count + chunk_numel - 1) / chunk_numel;
  const LaunchShape shape{.grid = grid_blocks(chunks * warp_threads, threads), .block = threads};
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    launch(queue, "round_and_norm", shape, round_and_norm_chunks<T>, sum, static_cast<T*>(rounded), count,
           partials);
  });
}

void round_to(KernelQueue& queue, const float* high, void* low, DType dtype, std::uint64_t numel) {
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    for_each_element(queue, "round_to", Convert<float, T>{high, static_cast<T*>(low)},
                     static_cast<std::int64_t>(numel));
  });
}

}  // namespace headrace
