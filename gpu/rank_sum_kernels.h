// The local half of an all-reduce: one vector of every rank, added in rank order.
#pragma once

#include <cstdint>

#include "gpu/kernel_queue.h"

namespace headrace {

// What this rank holds before the sum: its own vector, and the others' end to end at `gathered` (vector r at
// gathered + r * numel; this rank's place there is not read).
template <class T>
struct RankVectors {
  const T* own = nullptr;
  const T* gathered = nullptr;
  int self = 0, ranks = 1;
  std::int64_t numel = 0;

  template <class Visit>
  void pointers(Visit visit) {
    visit(own);
    visit(gathered);
  }
};

// sums[i] = vector_0[i] + vector_1[i] + ..., each addition in T's arithmetic. `sums` may be the own vector.
void sum_in_rank_order(KernelQueue& queue, const RankVectors<float>& vectors, float* sums);
void sum_in_rank_order(KernelQueue& queue, const RankVectors<double>& vectors, double* sums);
void sum_in_rank_order(KernelQueue& queue, const RankVectors<std::uint64_t>& vectors, std::uint64_t* sums);

}  // namespace headrace
