// Embedding by rows of two tables, the second of which may have none, forward and backward. Arguments are
// those of Ops (headrace/ops.h), in device memory of any alignment of their element type. Ids outside the
// vocabulary are told by check_tokens (token_kernels.h) and touch nothing here.
#pragma once

#include "gpu/kernel_queue.h"
#include "headrace/bytes.h"
#include "headrace/ops.h"

namespace headrace {

struct EmbeddingArguments {
  TokenBatch tokens;
  Matrix token_table, position_table;
  std::byte* x = nullptr;
};
void embedding(KernelQueue& queue, const EmbeddingArguments& arguments);

// One thread adds up an element's terms in fp32, in the order of the rows of dx, and rounds once.
struct EmbeddingBackwardArguments {
  TokenBatch tokens;
  const std::byte* dx = nullptr;
  const float* tied_gradient = nullptr;  // contiguous, or null
  Matrix dtoken, dposition;              // of one type
  std::byte* scratch = nullptr;          // device memory, 8-byte aligned
};
Bytes embedding_backward_scratch_bytes(const TokenBatch& tokens);
void embedding_backward(KernelQueue& queue, const EmbeddingBackwardArguments& arguments);

}  // namespace headrace
