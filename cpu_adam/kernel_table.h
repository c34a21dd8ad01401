// The kernels of one instruction set. A table is plain data: looking it up runs no instruction of that set.
#pragma once

#include <cstdint>

#include "headrace/optimizer_update.h"

namespace headrace {

// Elements that the update of a span takes at a time: its numel is a multiple (update_piece.h sees to the
// rest).
inline constexpr std::uint64_t tile_numel = quantised_block_numel;
// fp64 lanes of a partial of a squared norm (sums_body.h).
inline constexpr int norm_lanes = 32;

// Whether 16-bit parameters are written through the caches or past them; the latter needs low_precision
// aligned to a cache line.
enum class Stores : std::uint8_t { cached, streaming };

struct KernelTable {
  // Whole tiles whose element numbers share their upper halves.
  void (*update)(const UpdateSpan& span, const UpdateConstants& constants, Stores stores);
  // The loads and stores of `update` with one addition each, of whole tiles too: what memory allows, for
  // benchmarks. Its values mean nothing.
  void (*ceiling)(const UpdateSpan& span, Stores stores);
  void (*sum_slices)(const void* const* slices, std::uint64_t slice_count, DType dtype, std::uint64_t numel,
                     float* sum, bool accumulate);
  void (*round_and_norm)(const float* sum, void* rounded, DType dtype, std::uint64_t numel, double* partials);
  void (*round_to)(const float* high, void* low, DType dtype, std::uint64_t numel);
};

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
