// The kernels of one instruction set. A table is plain data: looking it up runs no instruction of that set.
#pragma once

#include <cstdint>

#include "headrace/optimizer_update.h"

namespace headrace {

// An update of fp32 states by Adam.
struct AdamBlock {
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;
  void* low_precision = nullptr;
  DType low_precision_dtype = DType::bf16;
  std::uint64_t numel = 0;
};

struct KernelTable {
  void (*adam)(const AdamBlock& block, const UpdateConstants& constants);
  // The loads and stores of `adam` with one addition each: what memory allows, for benchmarks. Its values
  // mean nothing.
  void (*adam_ceiling)(const AdamBlock& block);
  void (*sum_slices)(const void* const* slices, std::uint64_t slice_count, DType dtype, std::uint64_t numel,
                     float* sum, bool accumulate);
  void (*round_and_norm)(const float* sum, void* rounded, DType dtype, std::uint64_t numel, double* partials);
  void (*round_to)(const float* high, void* low, DType dtype, std::uint64_t numel);
};

// The fp32 Adam block of a span.
AdamBlock adam_block(const UpdateSpan& span);

// Null where the target architecture has no such instructions.
extern const KernelTable* const scalar_kernels;
extern const KernelTable* const avx2_kernels;
extern const KernelTable* const avx512_kernels;

// Throws UsageError unless supported(isa).
const KernelTable& kernels_of(Isa isa);

// The set that `name` (the value of HEADRACE_ISA) asks for; the widest supported one when it is null or
// empty.
Isa choose_isa(const char* name);

}  // namespace headrace
