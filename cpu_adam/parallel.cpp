#include "cpu_adam/adam_pieces.h"
#include "cpu_adam/kernel_table.h"
#include "cpu_adam/update_piece.h"
#include "headrace/cpu_pool.h"
#include "headrace/kernels.h"

namespace headrace {
namespace {

// Long enough that handing it to a thread costs nothing (some 50 us of work), short enough to share a block
// evenly.
constexpr std::uint64_t update_grain_numel = 8 * norm_chunk_numel;

}  // namespace

void for_each_piece(const UpdateSpan& span, const std::function<void(const UpdateSpan& piece)>& body) {
  parallel_ranges(span.numel, update_grain_numel,
                  [&](std::uint64_t begin, std::uint64_t end) { body(part_of(span, begin, end - begin)); });
}

void optimizer_update_parallel(const UpdateSpan& span, const OptimizerArguments& arguments) {
  require_meaning(span, arguments);
  const KernelTable& kernels = kernels_of(best_isa());
  const UpdateConstants constants = constants_of(arguments);
  const Stores stores = stores_for(span.numel);
  for_each_piece(span, [&](const UpdateSpan& piece) { update_piece(kernels, piece, constants, stores); });
}

void optimizer_update_parallel(std::span<const GroupSpan> spans, std::span<const OptimizerArguments> groups) {
  for (const GroupSpan& span : spans) optimizer_update_parallel(span.span, groups[span.group]);
}

}  // namespace headrace
