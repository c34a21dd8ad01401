// Sums over the rows of a matrix, one a column, in an order that the shape alone decides.
//
// [Note: order of sums over rows] The rows are cut in chunks (row_chunks). A block sums one chunk of some
// columns: strand s, a warp, adds rows s, s + strands, ... of the chunk in that order, and the strands are
// added in theirs. The partials of the chunks are rows again, summed the same way as one chunk. No sum
// depends on the columns beside it, on the launch or on alignment.
//
// A source says what is added up:
//   static constexpr int sums, vector_numel     sums a column; columns of one load
//   template <int n> void add(row, column, count, Floats<n> (&sum)[sums]) const
//       adds a row's terms of columns column ... column + n - 1, of which `count` exist
//   template <class Visit> void pointers(Visit visit)    of kernel_language.h
#pragma once

#include "gpu/element.cuh"

namespace headrace {

inline constexpr int sum_strands = 8;

struct RowChunks {
  std::int64_t rows, count;  // rows of a chunk; chunks
};
inline RowChunks row_chunks(std::int64_t rows) {
  constexpr std::int64_t fewest_rows = 64, most_chunks = 256;
  const std::int64_t wanted = (rows + most_chunks - 1) / most_chunks;
  const std::int64_t chunk_rows = wanted < fewest_rows ? fewest_rows : wanted;
  return {chunk_rows, (rows + chunk_rows - 1) / chunk_rows};
}

// Partials: of each chunk, of each sum, `width` floats.
inline Bytes partials_bytes(std::int64_t rows, std::int64_t width, int sums) {
  return static_cast<Bytes>(row_chunks(rows).count * sums * width) * sizeof(float);
}

// First column of this thread: blocks of 32 lanes, n columns a lane.
template <int n>
__device__ std::int64_t first_column() {
  return (static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x) * n;
}

// Sums rows [begin, end) of this thread's columns. The first strand returns with the totals of all.
template <class Source, int n = Source::vector_numel>
__device__ void sum_rows(const Source& source, std::int64_t begin, std::int64_t end, std::int64_t column,
                         std::int64_t count, Floats<n> (&sum)[Source::sums]) {
  constexpr int sums = Source::sums;
  __shared__ float of_strand[sum_strands][sums][n][32];
  const int lane = static_cast<int>(threadIdx.x), strand = static_cast<int>(threadIdx.y);
  for (int s = 0; s < sums; ++s) sum[s] = all<n>(0.0f);
  if (count > 0) {
#pragma unroll 4
    for (std::int64_t row = begin + strand; row < end; row += sum_strands)
      source.template add<n>(row, column, count, sum);
  }
  for (int s = 0; s < sums; ++s)
    for (int k = 0; k < n; ++k) of_strand[strand][s][k][lane] = sum[s][k];
  __syncthreads();
  if (strand != 0) return;
  for (int other = 1; other < sum_strands; ++other)
    for (int s = 0; s < sums; ++s)
      for (int k = 0; k < n; ++k) sum[s][k] += of_strand[other][s][k][lane];
}

// Grid: blocks of 32 * vector_numel columns, chunks.
template <class Source>
__global__ void __launch_bounds__(32 * sum_strands)
    sum_row_chunks(const __grid_constant__ Source source, std::int64_t rows, std::int64_t width,
                   std::int64_t chunk_rows, float* partials) {
  constexpr int n = Source::vector_numel, sums = Source::sums;
  const std::int64_t column = first_column<n>(), chunk = blockIdx.y, begin = chunk * chunk_rows;
  const std::int64_t end = rows - begin < chunk_rows ? rows : begin + chunk_rows;
  Floats<n> sum[sums];
  sum_rows(source, begin, end, column, width - column, sum);
  if (threadIdx.y != 0) return;
  for (int s = 0; s < sums; ++s)
    store_some<n>(partials + (chunk * sums + s) * width + column, sum[s], width - column, false);
}

// Partials of `sums` sums: a row a chunk.
struct PartialRows {
  static constexpr int sums = 1, vector_numel = 1;
  const float* partials;
  std::int64_t row_numel;

  template <int n>
  __device__ void add(std::int64_t row, std::int64_t column, std::int64_t, Floats<n> (&sum)[1]) const {
    sum[0][0] += partials[row * row_numel + column];
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(partials);
  }
};

// Where the totals of each sum go.
template <class T, int sums>
struct ColumnTotals {
  T* of[sums];
  template <class Visit>
  void pointers(Visit visit) {
    for (T*& total : of) visit(total);
  }
};

template <class T, int sums>
__global__ void __launch_bounds__(32 * sum_strands)
    combine_row_chunks(const __grid_constant__ PartialRows partials, std::int64_t chunks,
                       const __grid_constant__ ColumnTotals<T, sums> totals) {
  const std::int64_t column = first_column<1>(), width = partials.row_numel / sums;
  Floats<1> sum[1];
  sum_rows(partials, 0, chunks, column, partials.row_numel - column, sum);
  if (threadIdx.y == 0 && column < partials.row_numel)
    totals.of[column / width][column % width] = from_fp32<T>(sum[0][0]);
}

// `partials`: partials_bytes of floats. `source` has the same bits for all alignments (element.cuh).
template <class Source, class T>
void sum_columns(KernelQueue& queue, const char* name, const Source& source, std::int64_t rows,
                 std::int64_t width, float* partials, const ColumnTotals<T, Source::sums>& totals) {
  const RowChunks chunks = row_chunks(rows);
  const std::int64_t row_numel = width * Source::sums;
  const dim3 block(32, sum_strands);
  const auto blocks = [](std::int64_t columns, int each) {
    return static_cast<unsigned>((columns + 32 * each - 1) / (32 * each));
  };
  launch(queue, name,
         {.grid = dim3(blocks(width, Source::vector_numel), static_cast<unsigned>(chunks.count)),
          .block = block},
         sum_row_chunks<Source>, source, rows, width, chunks.rows, partials);
  launch(queue, name, {.grid = dim3(blocks(row_numel, 1)), .block = block},
         combine_row_chunks<T, Source::sums>, PartialRows{partials, row_numel}, chunks.count, totals);
}

}  // namespace headrace
