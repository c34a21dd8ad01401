#include "gpu/cross_entropy_kernels.h"

#include <cfloat>
#include <cmath>

#include "gpu/element.cuh"
#include "gpu/token_batch.cuh"

namespace headrace {
namespace {

constexpr int row_threads = 256, combined = 16, loads = 4;

// The sum of exp(x - largest) over some x.
struct ExponentialSum {
  float largest, sum;
};
constexpr ExponentialSum nothing{-FLT_MAX, 0.0f};

template <int n>
__device__ void add(const Floats<n>& x, ExponentialSum& total) {
  float largest = total.largest;
#pragma unroll
  for (int k = 0; k < n; ++k) largest = fmaxf(largest, x[k]);
  float sum = total.sum * expf(total.largest - largest);
#pragma unroll
  for (int k = 0; k < n; ++k) sum += expf(x[k] - largest);
  total = {largest, sum};
}

// The sum over `count` neighbours, in their order.
__device__ ExponentialSum combine(const ExponentialSum* parts, int step) {
  ExponentialSum total = nothing;
  for (int i = 0; i < combined; ++i) total.largest = fmaxf(total.largest, parts[i * step].largest);
  for (int i = 0; i < combined; ++i)
    total.sum += parts[i * step].sum * expf(parts[i * step].largest - total.largest);
  return total;
}

// Log of the sum of exp over a row, the same in all threads.
__device__ float log_sum_of_row(const float* logits, std::int64_t vocabulary) {
  __shared__ ExponentialSum parts[row_threads];
  static_assert(row_threads == combined * combined);
  const int thread = static_cast<int>(threadIdx.x);
  ExponentialSum mine = nothing;
  for (std::int64_t first = thread; first < vocabulary; first += loads * row_threads) {
    Floats<loads> x;
#pragma unroll
    for (int k = 0; k < loads; ++k) {
      const std::int64_t at = first + k * row_threads;
      x[k] = at < vocabulary ? logits[at] : -INFINITY;
    }
    add(x, mine);
  }
  parts[thread] = mine;
  __syncthreads();
  if (thread % combined == 0) parts[thread] = combine(parts + thread, 1);
  __syncthreads();
  const ExponentialSum total = combine(parts, combined);
  return total.largest + logf(total.sum);
}

template <class T>
struct CrossEntropyRows {
  const float* logits;
  TokenBatch tokens;
  std::int64_t first_row;
  double* losses;
  T* dlogits;
  float gradient_factor;

  template <class Visit>
  void pointers(Visit visit) {
    visit(logits), visit(tokens.ids), visit(losses), visit(dlogits);
  }
};

template <class T>
__global__ void __launch_bounds__(row_threads) cross_entropy_row(const CrossEntropyRows<T> a) {
  const std::int64_t vocabulary = a.tokens.vocabulary, row = a.first_row + blockIdx.x;
  const float* const logits = a.logits + blockIdx.x * vocabulary;
  const std::int64_t target = token_of(a.tokens, row, 1);
  const float log_sum = log_sum_of_row(logits, vocabulary);
  if (a.losses != nullptr && threadIdx.x == 0)
    a.losses[row] =
        static_cast<double>(log_sum) - (target == no_token ? NAN : static_cast<double>(logits[target]));
  if (a.dlogits == nullptr) return;
  T* const dlogits = a.dlogits + blockIdx.x * vocabulary;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < vocabulary; i += row_threads) {
    const float probability = expf(logits[i] - log_sum);
    dlogits[i] = from_fp32<T>((i == target ? probability - 1.0f : probability) * a.gradient_factor);
  }
}

}  // namespace

void cross_entropy(KernelQueue& queue, const CrossEntropyArguments& a) {
  with_element(a.dtype, [&](auto element) {
    using T = decltype(element);
    launch(queue, "cross-entropy", {.grid = static_cast<unsigned>(a.rows), .block = row_threads},
           cross_entropy_row<T>,
           CrossEntropyRows<T>{a.logits, a.tokens, a.first_row, a.losses, reinterpret_cast<T*>(a.dlogits),
                               a.gradient_factor});
  });
}

}  // namespace headrace
