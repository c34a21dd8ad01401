// Layer norm and RMS norm over the rows of a matrix, forward and backward. Pointers are device memory of any
// alignment of their element type. Statistics and sums are fp32, in an order that the shape alone decides;
// results are rounded once.
//
// Backward sums the gradients of scale and shift over the rows in fixed chunks, whose partials stand in
// `scratch`: device memory, 4-byte aligned, of the bytes that the shape asks for.
#pragma once

#include <cstdint>

#include "gpu/kernel_queue.h"
#include "headrace/bytes.h"
#include "headrace/ops.h"

namespace headrace {

void layer_norm(KernelQueue& queue, const LayerNormArguments& arguments);

Bytes layer_norm_backward_scratch_bytes(std::int64_t rows, std::int64_t width);
// dx may be dy.
void layer_norm_backward(KernelQueue& queue, const LayerNormBackwardArguments& arguments, float* scratch);

// y = x * rstd * scale, rstd = 1 / sqrt(mean of the row's squares + epsilon).
struct RmsNormArguments {
  Matrix x;                    // contiguous, as all of these
  std::byte* delta = nullptr;  // when given, sum = x + delta and the sum is normalised
  std::byte* sum = nullptr;
  const std::byte* scale = nullptr;  // of x's type
  std::byte* y = nullptr;
  float* rstd = nullptr;  // one a row
  float epsilon = 1e-5f;
};
void rms_norm(KernelQueue& queue, const RmsNormArguments& arguments);

struct RmsNormBackwardArguments {
  Matrix dy;
  const std::byte* x = nullptr;  // what was normalised
  const std::byte* scale = nullptr;
  const float* rstd = nullptr;
  std::byte* dx = nullptr;  // may be dy
  bool add_to_dx = false;   // dx += instead of dx =
  std::byte* dscale = nullptr;
};
Bytes rms_norm_backward_scratch_bytes(std::int64_t rows, std::int64_t width);
void rms_norm_backward(KernelQueue& queue, const RmsNormBackwardArguments& arguments, float* scratch);

}  // namespace headrace
