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

void layer_norm(KernelQueue& queue, const NormArguments& arguments);
void rms_norm(KernelQueue& queue, const NormArguments& arguments);

// dx may be dy.
Bytes layer_norm_backward_scratch_bytes(std::int64_t rows, std::int64_t width);
void layer_norm_backward(KernelQueue& queue, const NormBackwardArguments& arguments, float* scratch);
Bytes rms_norm_backward_scratch_bytes(std::int64_t rows, std::int64_t width);
void rms_norm_backward(KernelQueue& queue, const NormBackwardArguments& arguments, float* scratch);

}  // namespace headrace
