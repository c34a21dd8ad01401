// Reading the token ids of a micro-batch in kernels.
#pragma once

#include <cstdint>

#include "gpu/kernel_language.h"
#include "headrace/ops.h"

namespace headrace {

inline constexpr std::int64_t no_token = -1;

// Where row `row` has the id `ahead` positions after its own: 0 its token, 1 its target.
__device__ inline std::int64_t index_of(const TokenBatch& tokens, std::int64_t row, int ahead) {
  return row / tokens.sequence * (tokens.sequence + 1) + row % tokens.sequence + ahead;
}
// The id there, or no_token when it is outside the vocabulary.
__device__ inline std::int64_t token_of(const TokenBatch& tokens, std::int64_t row, int ahead) {
  const std::int64_t id = tokens.ids[index_of(tokens, row, ahead)];
  return id >= 0 && id < tokens.vocabulary ? id : no_token;
}

}  // namespace headrace
