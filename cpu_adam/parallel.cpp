#include <cstddef>
#include <type_traits>

#include "cpu_adam/adam_pieces.h"
#include "cpu_adam/kernel_table.h"
#include "headrace/adam.h"
#include "headrace/cpu_pool.h"
#include "headrace/kernels.h"

namespace headrace {
namespace {

// Long enough that handing it to a thread costs nothing (some 50 us of work), short enough to share a block
// evenly.
constexpr std::uint64_t update_grain_numel = 8 * norm_chunk_numel;

template <class Pointer>
Pointer advanced(Pointer start, std::uint64_t numel, DType dtype) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>, const std::byte, std::byte>;
  return start == nullptr ? nullptr : static_cast<Byte*>(start) + numel * size_of(dtype);
}

AdamBlock part_of(const AdamBlock& block, std::uint64_t begin, std::uint64_t end) {
  AdamBlock part = block;
  part.master += begin;
  part.exp_avg += begin;
  part.exp_avg_sq += begin;
  part.gradient = advanced(block.gradient, begin, block.gradient_dtype);
  part.low_precision = advanced(block.low_precision, begin, block.low_precision_dtype);
  part.numel = end - begin;
  return part;
}

}  // namespace

void for_each_piece(const AdamBlock& block, const std::function<void(const AdamBlock& piece)>& body) {
  parallel_ranges(block.numel, update_grain_numel,
                  [&](std::uint64_t begin, std::uint64_t end) { body(part_of(block, begin, end)); });
}

void adam_update_parallel(const AdamBlock& block, const AdamArguments& arguments) {
  const KernelTable& kernels = kernels_of(best_isa());
  const AdamConstants constants = constants_of(arguments);
  for_each_piece(block, [&](const AdamBlock& piece) { kernels.adam(piece, constants); });
}

}  // namespace headrace
