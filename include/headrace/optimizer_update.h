// Optimizer updates and sums of gradients over spans of host memory: pure functions without threads of their
// own unless the name says so. Every instruction set (isa.h), number of threads and cut of a span gives the
// same bits.
#pragma once

#include <cstdint>
#include <span>

#include "headrace/dtype.h"
#include "headrace/isa.h"
#include "headrace/optimizer.h"
#include "headrace/optimizer_state.h"

namespace headrace {

// One contiguous range of elements of one parameter group. Updated in place: the state's arrays (state.master
// is fp32 or bf16 as format.master says; with MasterDType::none it is the parameters, of parameter_dtype f32
// or bf16). Written: low_precision, when not null, rounded to nearest from the master as stored. Any
// alignment of the element types; nothing beyond `numel` is touched. With int8 moments the span starts on a
// quantisation block, and cuts of it are multiples of one.
struct UpdateSpan {
  StateFormat format;
  StateArrays state;
  DType parameter_dtype = DType::f32;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;
  void* low_precision = nullptr;
  DType low_precision_dtype = DType::bf16;
  std::uint64_t numel = 0;
  std::uint64_t first_element =
      0;  // its number among all elements of the model: what random bits are drawn by
};
// The type of state.master.
constexpr DType master_dtype(const UpdateSpan& span) {
  if (span.format.master == MasterDType::none) return span.parameter_dtype;
  return span.format.master == MasterDType::f32 ? DType::f32 : DType::bf16;
}
// Elements [begin, begin + numel) of it.
UpdateSpan part_of(const UpdateSpan& span, std::uint64_t begin, std::uint64_t numel);

// One pass over memory, the lines of optimizer.h. On the calling thread. Throws UsageError where format and
// arguments name different optimizers.
void optimizer_update(const UpdateSpan& span, const OptimizerArguments& arguments, Isa isa = best_isa());

// Throws UsageError where the states are not those of the arguments' optimizer, or of types without meaning:
// what every update asks first, on each device.
void require_meaning(const UpdateSpan& span, const OptimizerArguments& arguments);

// Spans with the group each belongs to: one parallel region for all of them on the threads of cpu_pool.h,
// however many and small they are. Blocks until done. Several calls may be one update, of `update_numel`
// elements (0: of the spans'): how parameters are written follows from what the whole of it does to the
// caches.
struct GroupSpan {
  UpdateSpan span;
  std::uint32_t group = 0;  // index into `groups`
};
void optimizer_update_parallel(std::span<const GroupSpan> spans, std::span<const OptimizerArguments> groups,
                               std::uint64_t update_numel = 0);
void optimizer_update_parallel(const UpdateSpan& span, const OptimizerArguments& arguments);

// The kernels of kernels.h over host memory, on the calling thread, with best_isa(). No slices sum to 0.
void sum_slices(std::span<const void* const> slices, DType dtype, std::uint64_t numel, float* sum,
                bool accumulate);
void round_and_norm(const float* sum, void* rounded, DType dtype, std::uint64_t numel, double* partials);
void round_to(const float* high, void* low, DType dtype, std::uint64_t numel);

}  // namespace headrace
