// How large the optimizer's blocks are: the one rule for the engine, the planner, `train` and `tune`.
#pragma once

#include <algorithm>
#include <cstdint>

#include "headrace/bytes.h"
#include "headrace/kernels.h"

namespace headrace {

inline constexpr Bytes state_bytes_per_element = 12;  // fp32 master, exp_avg, exp_avg_sq

// Elements of a whole block: their states fill `swap_block_bytes`, rounded down to norm chunks, of which it
// has at least one.
constexpr std::uint64_t block_numel(Bytes swap_block_bytes) {
  const Bytes chunk_bytes = state_bytes_per_element * norm_chunk_numel;
  return std::max<std::uint64_t>(swap_block_bytes / chunk_bytes, 1) * norm_chunk_numel;
}

}  // namespace headrace
