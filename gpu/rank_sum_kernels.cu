#include "gpu/rank_sum_kernels.h"

#include "gpu/kernel_language.h"

namespace headrace {
namespace {

constexpr unsigned threads = 256;

template <class T>
__device__ T value_of(const RankVectors<T>& vectors, int rank, std::int64_t i) {
  return rank == vectors.self ? vectors.own[i] : vectors.gathered[rank * vectors.numel + i];
}

template <class T>
__global__ void rank_sum(RankVectors<T> vectors, T* sums) {
  for (std::int64_t i = first_item(); i < vectors.numel; i += item_step()) {
    T sum = value_of(vectors, 0, i);
    for (int rank = 1; rank < vectors.ranks; ++rank) sum += value_of(vectors, rank, i);
    sums[i] = sum;
  }
}

template <class T>
void enqueue_sum(KernelQueue& queue, const RankVectors<T>& vectors, T* sums) {
  launch(queue, "rank_sum", {.grid = grid_blocks(vectors.numel, threads), .block = threads}, rank_sum<T>,
         vectors, sums);
}

}  // namespace

void sum_in_rank_order(KernelQueue& queue, const RankVectors<float>& vectors, float* sums) {
  enqueue_sum(queue, vectors, sums);
}

void sum_in_rank_order(KernelQueue& queue, const RankVectors<double>& vectors, double* sums) {
  enqueue_sum(queue, vectors, sums);
}

void sum_in_rank_order(KernelQueue& queue, const RankVectors<std::uint64_t>& vectors, std::uint64_t* sums) {
  enqueue_sum(queue, vectors, sums);
}

}  // namespace headrace
