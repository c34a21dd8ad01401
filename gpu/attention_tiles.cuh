// Tiles of attention in shared memory and the two products over them, by a block of 8 x 16 threads.
//
// Thread (row, column) owns the rows row + 8 i of the block's own tile. The 16 threads of a row are half a
// warp: what only they exchange needs no barrier of the block. Tiles are fp32, zeros stand where the sequence
// or the depth ends.
#pragma once

#include <cstdint>

#include "gpu/element.cuh"
#include "gpu/kernel_language.h"

namespace headrace {

inline constexpr int tile_row_threads = 8, column_threads = 16, tile_threads = tile_row_threads * column_threads;

struct ThreadPlace {
  int index, row, column;
};
__device__ __forceinline__ ThreadPlace thread_place() {
  const int index = static_cast<int>(threadIdx.x);
  return {index, index / column_threads, index % column_threads};
}

// Floats between rows of a tile: keeps quads aligned, and puts the quads of eight neighbouring rows on
// distinct banks.
__host__ __device__ constexpr int tile_stride(int columns) {
  return columns + 4;
}
__host__ __device__ constexpr int tile_numel(int rows, int columns) {
  return rows * tile_stride(columns);
}

// Rows of one head in global memory, from one row on: `rows` of them exist.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;  // elements
  int rows, depth;
  bool aligned;  // every row, to quads
};

template <int Rows, int Depth, class T>
__device__ __forceinline__ void load_tile(const HeadRows<const T>& from, const ThreadPlace& at, float* tile) {
  constexpr int quads = Depth / 4;
  for (int i = at.index; i < Rows * quads; i += tile_threads) {
    const int row = i / quads, column = i % quads * 4;
    Floats<4> x = all<4>(0.0f);
    if (row < from.rows && column < from.depth)
      x = load_some<4>(from.data + row * from.stride + column, from.depth - column, from.aligned);
    store(tile + row * tile_stride(Depth) + column, x);
  }
}

// product[i][j] = row (at.row + 8 i) of `left` times row (at.column + 16 j) of `right`.
template <int Depth, int RowsEach, int ColumnsEach>
__device__ __forceinline__ void multiply_rows(const float* left, const float* right, const ThreadPlace& at,
                                              float (&product)[RowsEach][ColumnsEach]) {
  constexpr int stride = tile_stride(Depth);
  left += at.row * stride;
  right += at.column * stride;
#pragma unroll
  for (int i = 0; i < RowsEach; ++i)
#pragma unroll
    for (int j = 0; j < ColumnsEach; ++j) product[i][j] = 0.0f;
#pragma unroll 2
  for (int k = 0; k < Depth; k += 4) {
    Floats<4> b[ColumnsEach];
#pragma unroll
    for (int j = 0; j < ColumnsEach; ++j) b[j] = load<4>(right + j * column_threads * stride + k);
#pragma unroll
    for (int i = 0; i < RowsEach; ++i) {
      const Floats<4> a = load<4>(left + i * tile_row_threads * stride + k);
#pragma unroll
      for (int j = 0; j < ColumnsEach; ++j)
#pragma unroll
        for (int part = 0; part < 4; ++part) product[i][j] = fmaf(a[part], b[j][part], product[i][j]);
    }
  }
}

// The columns of a row that one thread sums: runs of neighbours, so that loads are wide, 16 runs apart.
template <int Depth>
struct ThreadColumns {
  static constexpr int each = Depth / column_threads, run = each < 4 ? each : 4, runs = each / run;
  __device__ static int first(int number, const ThreadPlace& at) {
    return (number * column_threads + at.column) * run;
  }
};

// sum[i][...] += sum over c of weights[at.row + 8 i][c] * right[c][the thread's columns].
template <int Columns, int Depth, int RowsEach>
__device__ __forceinline__ void add_product(const float* weights, const float* right, const ThreadPlace& at,
                                            float (&sum)[RowsEach][ThreadColumns<Depth>::each]) {
  using Mine = ThreadColumns<Depth>;
  constexpr int run = Mine::run, stride = tile_stride(Depth);
  weights += at.row * tile_stride(Columns);
  for (int c = 0; c < Columns; c += 4) {
#pragma unroll
    for (int r = 0; r < Mine::runs; ++r) {
      Floats<run> b[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) b[k] = load<run>(right + (c + k) * stride + Mine::first(r, at));
#pragma unroll
      for (int i = 0; i < RowsEach; ++i) {
        const Floats<4> a = load<4>(weights + i * tile_row_threads * tile_stride(Columns) + c);
#pragma unroll
        for (int d = 0; d < run; ++d)
#pragma unroll
          for (int k = 0; k < 4; ++k) sum[i][r * run + d] = fmaf(a[k], b[k][d], sum[i][r * run + d]);
      }
    }
  }
}

// Row i of `sum`, times `factor`, to row at.row + 8 i of the head.
template <int Depth, class T>
__device__ __forceinline__ void store_row(const float (&sum)[ThreadColumns<Depth>::each], float factor,
                                          const ThreadPlace& at, int row, const HeadRows<T>& to) {
  using Mine = ThreadColumns<Depth>;
  if (row >= to.rows) return;
#pragma unroll
  for (int r = 0; r < Mine::runs; ++r) {
    const int column = Mine::first(r, at);
    Floats<Mine::run> x;
#pragma unroll
    for (int d = 0; d < Mine::run; ++d) x[d] = sum[r * Mine::run + d] * factor;
    store_some(to.data + row * to.stride + column, x, to.depth - column, to.aligned);
  }
}

}  // namespace headrace
