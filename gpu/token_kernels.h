// Passes over the token ids of a micro-batch: are they in the vocabulary, and which rows hold which token. A
// row is a prediction, sample * sequence + position.
#pragma once

#include <cstdint>

#include "gpu/kernel_fault.h"
#include "gpu/kernel_queue.h"
#include "headrace/bytes.h"
#include "headrace/ops.h"

namespace headrace {

// Of rows first_row ... first_row + rows - 1, the ids they read, or with `targets` those they predict: the
// first one outside the vocabulary is put in *fault (memory that kernels reach) unless a fault stands there.
struct TokenCheck {
  TokenBatch tokens;
  std::int64_t first_row = 0, rows = 0;
  bool targets = false;
  KernelFault* fault = nullptr;
};
void check_tokens(KernelQueue& queue, const TokenCheck& check);

// Rows by the token they read, in order within one: those of token v are the lower halves of
// keys[first[v]] ... keys[first[v + 1] - 1]. Rows whose token is outside the vocabulary are in none.
struct RowsByToken {
  const std::uint64_t* keys = nullptr;
  const std::uint32_t* first = nullptr;  // vocabulary + 1
};
Bytes rows_by_token_scratch_bytes(const TokenBatch& tokens);
// `scratch`: device memory, 8-byte aligned; the result lies in it.
RowsByToken sort_rows_by_token(KernelQueue& queue, const TokenBatch& tokens, std::byte* scratch);

}  // namespace headrace
