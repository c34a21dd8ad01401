#include "src/bench/update_check.h"

#include <algorithm>
#include <set>

namespace headrace {
namespace {

constexpr std::uint64_t piece_numel = 4 * pattern_numel, most_blocks = 12;

// Starts of the pieces of a block: where its pattern starts anew, so that a piece of its own is filled
// alike.
std::set<std::uint64_t> piece_starts(std::uint64_t numel) {
  const auto at = [](std::uint64_t element) { return element / piece_numel * piece_numel; };
  return {0, at(numel / 2), at(numel - 1)};
}

// The same elements, filled and updated by the scalar kernel, have the bits of this part.
bool same_piece(const UpdateCase& one, const UpdateSpan& part) {
  UpdateCase alone = one;
  alone.shape = {.tensors = 1, .numel = part.numel};
  std::vector<std::byte> memory(tensor_bytes(alone));
  std::vector<GroupSpan> oracle = lay_out(alone, memory);
  oracle[0].span.first_element = part.first_element;
  fill(alone, oracle);
  optimizer_update(oracle[0].span, alone.arguments, Isa::scalar);
  return std::ranges::equal(arrays_of(part), arrays_of(oracle[0].span),
                            [](const auto& a, const auto& b) { return std::ranges::equal(a, b); });
}

}  // namespace

bool has_scalar_bits(const UpdateCase& one, std::span<const GroupSpan> updated) {
  const std::uint64_t checked = std::min<std::uint64_t>(updated.size(), most_blocks);
  for (std::uint64_t k = 0; k < checked; ++k) {
    const std::uint64_t b = checked == 1 ? 0 : k * (updated.size() - 1) / (checked - 1);
    const UpdateSpan& block = updated[b].span;
    for (const std::uint64_t start : piece_starts(block.numel))
      if (!same_piece(one, part_of(block, start, std::min(piece_numel, block.numel - start)))) return false;
  }
  return true;
}

}  // namespace headrace
