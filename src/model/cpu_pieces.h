// How the CPU's operations are cut: sizes of pieces, which no result may depend on the threads for, and sums
// of fixed chunks of rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "headrace/bytes.h"
#include "headrace/dtype.h"
#include "src/model/row_kernels.h"

namespace headrace {

inline constexpr std::int64_t pass_grain_numel = 16384;  // of the passes between the products
inline constexpr std::int64_t sum_chunk_rows = 64;       // rows of one partial sum

inline Bytes bytes_of(std::int64_t numel, DType dtype) {
  return static_cast<Bytes>(numel) * size_of(dtype);
}
// Rows of a piece of a pass over rows.
inline std::int64_t pass_grain_rows(std::int64_t width) {
  return std::max<std::int64_t>(1, pass_grain_numel / width);
}
inline std::int64_t chunks_of(std::int64_t rows) {
  return (rows + sum_chunk_rows - 1) / sum_chunk_rows;
}
// Adds the chunks' partial sums in chunk order.
inline void combine_chunks(const float* partials, std::int64_t chunks, std::int64_t width, float* sum) {
  std::fill_n(sum, width, 0.0f);
  row_kernels(DType::f32).column_sums(partials, chunks, width, width, sum);
}

}  // namespace headrace
