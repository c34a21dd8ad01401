#include "cpu_adam/update_piece.h"

#include <algorithm>
#include <cstring>

#include "headrace/errors.h"

namespace headrace {
namespace {

// A tile of a span's own types with room for `numel` of its elements; the others are 0, and their results are
// dropped.
struct PaddedTile {
  alignas(64) std::byte master[tile_numel * sizeof(float)] = {};
  std::byte gradient[tile_numel * sizeof(float)] = {};
  std::byte low_precision[tile_numel * sizeof(float)] = {};
  std::byte moments[most_moments][tile_numel * sizeof(float)] = {};
  float scales[most_moments] = {};
};

void copy_bytes(void* to, const void* from, Bytes bytes) {
  if (to != nullptr && from != nullptr && bytes > 0) std::memcpy(to, from, bytes);
}

// The span's place in the tile.
UpdateSpan placed(const UpdateSpan& span, PaddedTile& tile) {
  UpdateSpan padded = span;
  padded.state.master = tile.master;
  padded.gradient = tile.gradient;
  if (span.low_precision != nullptr) padded.low_precision = tile.low_precision;
  for (int k = 0; k < moment_count(span.format); ++k)
    padded.state.moments[static_cast<std::size_t>(k)] = {tile.moments[k], tile.scales + k};
  padded.numel = tile_numel;
  return padded;
}

void copy_states(const UpdateSpan& to, const UpdateSpan& from, std::uint64_t numel) {
  copy_bytes(to.state.master, from.state.master, numel * size_of(master_dtype(from)));
  for (std::size_t k = 0; k < static_cast<std::size_t>(moment_count(from.format)); ++k) {
    copy_bytes(to.state.moments[k].values, from.state.moments[k].values,
               numel * size_of(from.format.moments));
    if (from.format.moments == MomentDType::int8)
      copy_bytes(to.state.moments[k].scales, from.state.moments[k].scales, sizeof(float));
  }
}

// Less than a tile.
void update_rest(const KernelTable& kernels, const UpdateSpan& span, const UpdateConstants& constants) {
  if (span.numel == 0) return;
  PaddedTile tile;
  const UpdateSpan padded = placed(span, tile);
  copy_states(padded, span, span.numel);
  copy_bytes(tile.gradient, span.gradient, span.numel * size_of(span.gradient_dtype));
  kernels.update(padded, constants, Stores::cached);
  copy_states(span, padded, span.numel);
  copy_bytes(span.low_precision, padded.low_precision, span.numel * size_of(span.low_precision_dtype));
}

// Elements until the 16-bit parameters fill whole cache lines; all of them where they never do.
std::uint64_t numel_before_lines(const UpdateSpan& span) {
  constexpr std::uintptr_t line_bytes = 64;
  const bool halves = span.low_precision != nullptr && span.low_precision_dtype != DType::f32;
  const auto past = reinterpret_cast<std::uintptr_t>(span.low_precision) % line_bytes;
  if (!halves || past % sizeof(bf16) != 0) return span.numel;
  const std::uint64_t numel = past == 0 ? 0 : (line_bytes - past) / sizeof(bf16);
  return numel > 0 && span.format.moments == MomentDType::int8 ? span.numel : std::min(numel, span.numel);
}

void update_cached(const KernelTable& kernels, const UpdateSpan& span, const UpdateConstants& constants) {
  const std::uint64_t whole = span.numel / tile_numel * tile_numel;
  if (whole > 0) kernels.update(part_of(span, 0, whole), constants, Stores::cached);
  update_rest(kernels, part_of(span, whole, span.numel - whole), constants);
}

// Elements whose numbers share their upper halves.
void update_stretch(const KernelTable& kernels, const UpdateSpan& span, const UpdateConstants& constants,
                    Stores stores) {
  const std::uint64_t before = stores == Stores::streaming ? numel_before_lines(span) : span.numel;
  update_cached(kernels, part_of(span, 0, before), constants);
  const std::uint64_t streamed = (span.numel - before) / tile_numel * tile_numel, end = before + streamed;
  if (streamed > 0) kernels.update(part_of(span, before, streamed), constants, Stores::streaming);
  update_rest(kernels, part_of(span, end, span.numel - end), constants);
}

}  // namespace

void require_meaning(const UpdateSpan& span, const OptimizerArguments& arguments) {
  const StateFormat wanted = format_of(arguments, span.format.master, span.format.moments);
  if (span.format != wanted)
    throw UsageError(fmt::format("optimizer update: the states are those of {}, the arguments those of {}",
                                 optimizer_text(span.format), optimizer_text(wanted)));
  if (span.format.master == MasterDType::none && span.parameter_dtype == DType::f16)
    throw UsageError(
        "optimizer update: fp16 parameters cannot be their own master; keep an fp32 or bf16 master");
  if (span.format.moments == MomentDType::int8 && span.first_element % quantised_block_numel != 0)
    throw UsageError(fmt::format("optimizer update: element {} starts no block of {} int8 moments",
                                 span.first_element, quantised_block_numel));
}

void update_piece(const KernelTable& kernels, const UpdateSpan& span, const UpdateConstants& constants,
                  Stores stores) {
  constexpr std::uint64_t stretch_numel = std::uint64_t{1} << 32;
  std::uint64_t begin = 0;
  while (begin < span.numel) {
    const std::uint64_t to_border = stretch_numel - (span.first_element + begin) % stretch_numel;
    const std::uint64_t numel = std::min(to_border, span.numel - begin);
    update_stretch(kernels, part_of(span, begin, numel), constants, stores);
    begin += numel;
  }
}

}  // namespace headrace
