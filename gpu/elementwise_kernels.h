// Passes over elements and the sums of columns. Pointers are device memory of any alignment of their element
// type; matrices are contiguous unless said. Computed in fp32, rounded once to the type of the result. An
// output may be one of the inputs of the same type.
#pragma once

#include <cstdint>

#include "gpu/kernel_queue.h"
#include "headrace/bytes.h"
#include "headrace/ops.h"

namespace headrace {

// GELU by its tanh approximation. backward: dy becomes dx, y = gelu(x) again.
void gelu(KernelQueue& queue, const Matrix& x, std::byte* y);
void gelu_backward(KernelQueue& queue, const Matrix& x, std::byte* dy, std::byte* y);

// y = silu(gate) * up, silu(x) = x * sigmoid(x); a row of `hidden` is those of gate and up, side by side.
// backward: hidden becomes its gradient, dy becomes y.
void swiglu(KernelQueue& queue, const Matrix& hidden, std::byte* y);
void swiglu_backward(KernelQueue& queue, const Matrix& hidden, std::byte* dy);

// sum = a + b.
void add(KernelQueue& queue, const Matrix& a, const std::byte* b, std::byte* sum);
// sum += x, in fp32.
void accumulate(KernelQueue& queue, const Matrix& x, float* sum);
// scaled = x * factor.
void scale(KernelQueue& queue, const Matrix& x, float factor, std::byte* scaled);
// to[i] = from[i] in the type of `to`. Overlapping only when both are the same matrix.
void convert(KernelQueue& queue, const void* from, DType from_dtype, void* to, DType to_dtype,
             std::int64_t numel);

// sums[c] = sum of x's column c, of x's type; x may be strided. Fixed chunks of rows, which the shape alone
// decides, have their partials in `scratch` (device memory, 4-byte aligned), combined in chunk order.
Bytes column_sums_scratch_bytes(std::int64_t rows, std::int64_t columns);
void column_sums(KernelQueue& queue, const Matrix& x, std::byte* sums, float* scratch);

// *mean = the mean of `count` values, summed in order in fp64; `mean` is device memory.
void mean(KernelQueue& queue, const double* values, std::int64_t count, float* mean);

}  // namespace headrace
