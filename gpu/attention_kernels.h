// Causal attention that never stores the matrix of scores: a block holds a tile of queries (or, for the
// gradients of keys and values, of keys) and walks the tiles of the other side past it. Arguments are those
// of Ops::attention (headrace/ops.h), in device memory of any alignment of their element type. Head depths 1
// to 256.
//
// Products and sums are fp32 and no float is added atomically. Tiles depend on the head's depth alone, so the
// bits depend neither on the device nor on the order in which blocks run.
//
// What tensor cores would change: the two products of attention_tiles.cuh become mma instructions on bf16 or
// fp16 tiles, which stay in shared memory unwidened (half of it, so larger tiles or two stages filled by
// cp.async); probabilities are rounded to that type before they multiply values, as on the CPU; the softmax
// between the products and the walk over tiles stay as they are.
#pragma once

#include "gpu/kernel_queue.h"
#include "headrace/bytes.h"
#include "headrace/ops.h"

namespace headrace {

inline constexpr std::int64_t largest_head_depth = 256;

void attention(KernelQueue& queue, const AttentionShape& shape, const std::byte* qkv, std::byte* output,
               float* log_sums);
// Of queries behind the rows that were in the cache; their own keys and values are in it too.
void cached_attention(KernelQueue& queue, const AttentionShape& shape, const std::byte* qkv,
                      const KeyValueCache& cache, std::byte* output);

// `scratch`: device memory of attention_backward_scratch_bytes, 4-byte aligned.
Bytes attention_backward_scratch_bytes(const AttentionShape& shape);
struct AttentionBackwardArguments {
  AttentionShape shape;
  const std::byte* qkv = nullptr;
  const std::byte* output = nullptr;
  const std::byte* doutput = nullptr;
  const float* log_sums = nullptr;
  std::byte* dqkv = nullptr;
  float* scratch = nullptr;
};
void attention_backward(KernelQueue& queue, const AttentionBackwardArguments& arguments);

}  // namespace headrace
