// The passes between the matrix products: norms, activations, positions, softmax, sums over rows. Pure
// functions over host memory, one thread each; cpu_ops.cpp cuts the work in fixed pieces. One table per
// instruction set and element type; every table gives the same bits (vector_math.h).
#pragma once

#include <cstdint>

#include "headrace/dtype.h"
#include "headrace/isa.h"

namespace headrace {

// Row r of a matrix starts at base + r * stride elements. `void` data is of the table's element type T.
// An RMS norm has no shift and no mean.
struct NormRows {
  const void* x;
  const void* delta;  // when not null: x + delta, rounded to T, is stored in `sum` and normalised
  void* sum;
  const void* scale;
  const void* shift;
  void* y;
  float* mean;
  float* rstd;
  std::int64_t width;
  float epsilon = 1e-5f;
};

struct NormBackwardRows {
  const void* dy;
  const void* x;
  const void* scale;
  const float* mean;
  const float* rstd;
  void* dx;
  bool add_to_dx;  // dx += the norm's gradient; else dx =
  std::int64_t width;
};

// `rows` rows of fp32 scores, `stride` apart; row r attends to the first `first_keys` + r columns; columns up
// to `columns` are written.
struct SoftmaxRows {
  const float* scores;
  void* probabilities;  // T, same stride; 0 beyond the row's keys
  float* log_sum;       // one a row: log of the sum of exp(scale * score)
  float scale;
  std::int64_t rows, first_keys, columns, stride;
};
struct SoftmaxBackwardRows {
  const float* scores;
  const float* dprobabilities;
  const float* log_sum;
  const float* dot;     // one a row: sum of output * doutput
  void* probabilities;  // T, written
  void* dscores;        // T, written: gradient of the unscaled scores
  float scale;
  std::int64_t rows, first_keys, columns, stride;
};

struct CrossEntropyRows {
  const float* logits;  // rows x vocabulary, contiguous
  const std::int32_t* targets;
  double* losses;  // one a row; null: not wanted
  void* dlogits;   // T, contiguous; null: not wanted
  float gradient_factor;
  std::int64_t vocabulary;
};

struct RowKernels {
  void (*layer_norm)(const NormRows&, std::int64_t begin, std::int64_t end);
  void (*rms_norm)(const NormRows&, std::int64_t begin, std::int64_t end);
  // Adds the rows' share to scale_sum and shift_sum (fp32, `width` each), which start at 0.
  void (*layer_norm_backward)(const NormBackwardRows&, std::int64_t begin, std::int64_t end, float* scale_sum,
                              float* shift_sum);
  void (*rms_norm_backward)(const NormBackwardRows&, std::int64_t begin, std::int64_t end, float* scale_sum);
  void (*gelu)(const void* x, void* y, std::int64_t numel);
  // dy becomes dx; y = gelu(x).
  void (*gelu_backward)(const void* x, void* dy, void* y, std::int64_t numel);
  // y = silu(gate) * up.
  void (*swiglu)(const void* gate, const void* up, void* y, std::int64_t numel);
  // gate and up become their gradients, dy becomes y.
  void (*swiglu_backward)(void* gate, void* up, void* dy, std::int64_t numel);
  // Of each of `heads` neighbouring heads, turns elements i of both halves by the i-th angle.
  void (*rotary)(void* x, const float* cosines, const float* sines, std::int64_t heads, std::int64_t depth);
  // sum[c] += x[r][c], rows in order.
  void (*column_sums)(const void* x, std::int64_t rows, std::int64_t width, std::int64_t stride, float* sum);
  // dot[r] = sum over the row of a * b.
  void (*row_dots)(const void* a, const void* b, std::int64_t rows, std::int64_t width, std::int64_t stride,
                   float* dot);
  void (*softmax)(const SoftmaxRows&);
  void (*softmax_backward)(const SoftmaxBackwardRows&);
  void (*cross_entropy)(const CrossEntropyRows&, std::int64_t begin, std::int64_t end);
  // out = a + b, rounded once.
  void (*add)(const void* a, const void* b, void* out, std::int64_t numel);
  // sum += x.
  void (*accumulate)(const void* x, float* sum, std::int64_t numel);
  void (*widen)(const void* x, float* out, std::int64_t numel);
  void (*round)(const float* x, void* out, std::int64_t numel);
};

struct RowKernelTables {
  RowKernels f32, bf16, f16;
};
// Null where the target architecture has no such instructions.
extern const RowKernelTables* const row_kernels_baseline;
extern const RowKernelTables* const row_kernels_avx2;
extern const RowKernelTables* const row_kernels_avx512;

const RowKernels& row_kernels(DType dtype, Isa isa = best_isa());

}  // namespace headrace
