#include "gpu/token_kernels.h"

#include <algorithm>

#include "gpu/kernel_language.h"
#include "gpu/token_batch.cuh"

namespace headrace {
namespace {

// ---- check

constexpr int check_threads = 256;

struct TokenCheckPointers : TokenCheck {
  template <class Visit>
  void pointers(Visit visit) {
    visit(tokens.ids), visit(fault);
  }
};

// One block: its threads find their first faulty row each, and the lowest of all is the one that is told.
__global__ void check_tokens_kernel(TokenCheckPointers check) {
  __shared__ std::int64_t lowest[check_threads];
  const int thread = static_cast<int>(threadIdx.x);
  const int ahead = check.targets ? 1 : 0;
  std::int64_t row = thread;
  while (row < check.rows && token_of(check.tokens, check.first_row + row, ahead) != no_token)
    row += check_threads;
  lowest[thread] = row;
  __syncthreads();
  constexpr int group = 16;
  if (thread % group == 0)
    for (int i = 1; i < group; ++i) lowest[thread] = std::min(lowest[thread], lowest[thread + i]);
  __syncthreads();
  if (thread != 0) return;
  for (int i = 0; i < check_threads; i += group) row = std::min(row, lowest[i]);
  if (row >= check.rows || check.fault->code != KernelFault::none) return;
  const std::int64_t where = index_of(check.tokens, check.first_row + row, ahead);
  check.fault->where = where;
  check.fault->value = check.tokens.ids[where];
  __threadfence_system();  // the host looks at the code first
  check.fault->code = KernelFault::token_outside_vocabulary;
}

// ---- sort: runs of sorted keys, merged in pairs. All keys differ, so a key's place is the number of smaller
// ones.

constexpr std::int64_t first_run = 64;

__device__ std::uint64_t key_of(const TokenBatch& tokens, std::int64_t row) {
  const auto id = static_cast<std::uint32_t>(tokens.ids[index_of(tokens, row, 0)]);
  return (static_cast<std::uint64_t>(id) << 32) | static_cast<std::uint64_t>(row);
}

// The first of keys[begin] ... keys[end - 1] that is not below `key`.
__device__ std::int64_t lower_bound(const std::uint64_t* keys, std::int64_t begin, std::int64_t end,
                                    std::uint64_t key) {
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (keys[middle] < key)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

struct TokenBatchPointers : TokenBatch {
  template <class Visit>
  void pointers(Visit visit) {
    visit(ids);
  }
};

__global__ void sort_first_runs(TokenBatchPointers tokens, std::uint64_t* keys, std::int64_t count) {
  for (std::int64_t row = first_item(); row < count; row += item_step()) {
    const std::int64_t begin = row / first_run * first_run, end = std::min(begin + first_run, count);
    const std::uint64_t key = key_of(tokens, row);
    std::int64_t place = begin;
    for (std::int64_t other = begin; other < end; ++other) place += key_of(tokens, other) < key ? 1 : 0;
    keys[place] = key;
  }
}

__global__ void merge_runs(const std::uint64_t* from, std::uint64_t* to, std::int64_t count,
                           std::int64_t run) {
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    const std::int64_t begin = i / (2 * run) * (2 * run);
    const std::int64_t middle = std::min(begin + run, count), end = std::min(begin + 2 * run, count);
    const std::uint64_t key = from[i];
    const std::int64_t place = i < middle ? i + lower_bound(from, middle, end, key) - middle
                                          : i - middle + lower_bound(from, begin, middle, key);
    to[place] = key;
  }
}

__global__ void find_first_rows(const std::uint64_t* keys, std::int64_t count, std::uint32_t* first,
                                std::int64_t vocabulary) {
  for (std::int64_t v = first_item(); v <= vocabulary; v += item_step())
    first[v] = static_cast<std::uint32_t>(lower_bound(keys, 0, count, static_cast<std::uint64_t>(v) << 32));
}

}  // namespace

void check_tokens(KernelQueue& queue, const TokenCheck& check) {
  launch(queue, "check tokens", {.grid = 1, .block = check_threads}, check_tokens_kernel,
         TokenCheckPointers{check});
}

Bytes rows_by_token_scratch_bytes(const TokenBatch& tokens) {
  return static_cast<Bytes>(tokens.batch * tokens.sequence) * 2 * sizeof(std::uint64_t) +
         static_cast<Bytes>(tokens.vocabulary + 1) * sizeof(std::uint32_t);
}

RowsByToken sort_rows_by_token(KernelQueue& queue, const TokenBatch& tokens, std::byte* scratch) {
  constexpr unsigned threads = 256;
  const std::int64_t count = tokens.batch * tokens.sequence;
  auto* keys = reinterpret_cast<std::uint64_t*>(scratch);
  auto* merged = keys + count;
  auto* const first = reinterpret_cast<std::uint32_t*>(merged + count);
  const LaunchShape shape{.grid = grid_blocks(count, threads), .block = threads};
  launch(queue, "sort tokens", shape, sort_first_runs, TokenBatchPointers{tokens}, keys, count);
  for (std::int64_t run = first_run; run < count; run *= 2) {
    launch(queue, "merge sorted tokens", shape, merge_runs, keys, merged, count, run);
    std::swap(keys, merged);
  }
  launch(queue, "first rows of tokens",
         {.grid = grid_blocks(tokens.vocabulary + 1, threads), .block = threads}, find_first_rows, keys,
         count, first, tokens.vocabulary);
  return {keys, first};
}

}  // namespace headrace
