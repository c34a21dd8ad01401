// How large the optimizer's blocks are: the one rule for the engine, the planner, `train` and `tune`.
#pragma once

#include <algorithm>
#include <cstdint>

#include "headrace/bytes.h"
#include "headrace/kernels.h"
#include "headrace/optimizer_state.h"

namespace headrace {

// What a norm chunk counts for: its states, and at least a byte an element, as SGD may keep no states at all.
inline Bytes block_chunk_bytes(const StateFormat& format) {
  return std::max<Bytes>(state_bytes(format, norm_chunk_numel), norm_chunk_numel);
}

// Elements of a whole block: as many norm chunks as fit into `swap_block_bytes`, at least one.
inline std::uint64_t block_numel(Bytes swap_block_bytes, const StateFormat& format) {
  return std::max<std::uint64_t>(swap_block_bytes / block_chunk_bytes(format), 1) * norm_chunk_numel;
}

}  // namespace headrace
