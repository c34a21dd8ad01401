// Layer norm and RMS norm on the CPU. The gradients of scale and shift are sums over rows: partials of fixed
// chunks, added in chunk order.
#include <algorithm>

#include "src/model/cpu_ops.h"
#include "src/model/cpu_pieces.h"

namespace headrace {
namespace {

NormRows rows_of(const NormArguments& a) {
  return {.x = a.x.data,
          .delta = a.delta,
          .sum = a.sum,
          .scale = a.scale,
          .shift = a.shift,
          .y = a.y,
          .mean = a.mean,
          .rstd = a.rstd,
          .width = a.x.columns,
          .epsilon = a.epsilon};
}

NormBackwardRows rows_of(const NormBackwardArguments& a) {
  return {.dy = a.dy.data,
          .x = a.x,
          .scale = a.scale,
          .mean = a.mean,
          .rstd = a.rstd,
          .dx = a.dx,
          .add_to_dx = a.add_to_dx,
          .width = a.dy.columns};
}

}  // namespace

void CpuOps::layer_norm(const NormArguments& a) {
  enqueue_pieces("layer norm", a.x.rows, pass_grain_rows(a.x.columns),
                 [rows = rows_of(a), dtype = a.x.dtype](std::int64_t begin, std::int64_t end, int) {
                   row_kernels(dtype).layer_norm(rows, begin, end);
                 });
}

void CpuOps::rms_norm(const NormArguments& a) {
  enqueue_pieces("rms norm", a.x.rows, pass_grain_rows(a.x.columns),
                 [rows = rows_of(a), dtype = a.x.dtype](std::int64_t begin, std::int64_t end, int) {
                   row_kernels(dtype).rms_norm(rows, begin, end);
                 });
}

void CpuOps::layer_norm_backward(const NormBackwardArguments& a) {
  const std::int64_t width = a.dy.columns, chunks = chunks_of(a.dy.rows);
  const DType dtype = a.dy.dtype;
  const StackScope scope(memory_);
  // Per chunk the partials of scale and shift, side by side; then the totals.
  auto* partials = reinterpret_cast<float*>(
      memory_.push(MemoryTag::workspace, bytes_of((chunks + 1) * 2 * width, DType::f32)));
  enqueue_pieces("layer norm backward", a.dy.rows, sum_chunk_rows,
                 [=, rows = rows_of(a)](std::int64_t begin, std::int64_t end, int) {
                   float* sum = partials + begin / sum_chunk_rows * 2 * width;
                   std::fill_n(sum, 2 * width, 0.0f);
                   row_kernels(dtype).layer_norm_backward(rows, begin, end, sum, sum + width);
                 });
  device_.enqueue(Lane::compute, "layer norm backward", [=, dscale = a.dscale, dshift = a.dshift] {
    float* total = partials + chunks * 2 * width;
    combine_chunks(partials, chunks, 2 * width, total);
    row_kernels(dtype).round(total, dscale, width);
    row_kernels(dtype).round(total + width, dshift, width);
  });
}

void CpuOps::rms_norm_backward(const NormBackwardArguments& a) {
  const std::int64_t width = a.dy.columns, chunks = chunks_of(a.dy.rows);
  const DType dtype = a.dy.dtype;
  const StackScope scope(memory_);
  auto* partials = reinterpret_cast<float*>(
      memory_.push(MemoryTag::workspace, bytes_of((chunks + 1) * width, DType::f32)));
  enqueue_pieces("rms norm backward", a.dy.rows, sum_chunk_rows,
                 [=, rows = rows_of(a)](std::int64_t begin, std::int64_t end, int) {
                   float* sum = partials + begin / sum_chunk_rows * width;
                   std::fill_n(sum, width, 0.0f);
                   row_kernels(dtype).rms_norm_backward(rows, begin, end, sum);
                 });
  device_.enqueue(Lane::compute, "rms norm backward", [=, dscale = a.dscale] {
    float* total = partials + chunks * width;
    combine_chunks(partials, chunks, width, total);
    row_kernels(dtype).round(total, dscale, width);
  });
}

}  // namespace headrace
