#include "src/zero/initial_states.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "src/zero/initial_values.h"

namespace headrace {
namespace {

// In pieces, so that their fp32 values need no memory beside the states.
void fill_rounded(bf16* master, std::uint64_t numel,
                  const std::function<void(std::uint64_t from, std::span<float> out)>& fill) {
  std::array<float, norm_chunk_numel> wide;
  for (std::uint64_t from = 0; from < numel; from += wide.size()) {
    const std::uint64_t count = std::min<std::uint64_t>(wide.size(), numel - from);
    fill(from, {wide.data(), count});
    round_to(wide.data(), master + from, DType::bf16, count);
  }
}

}  // namespace

// Zero is zero bytes in every type.
void clear_states(StateFormat format, const StateArrays& states, std::uint64_t numel) {
  std::memset(states.master, 0, numel * (format.master == MasterDType::f32 ? sizeof(float) : sizeof(bf16)));
  format.master = MasterDType::none;
  if (moment_count(format) > 0) std::memset(states.moments[0].values, 0, state_bytes(format, numel));
}

void fill_initial_states(const EngineContext& context, const OptimizerBlock& block, const StateArrays& states,
                         const Engine::ValueSource& values) {
  const UnitLayout& layout = context.units[block.unit].layout;
  const StateFormat format = kept_format(context.options);
  clear_states(format, states, block.range.numel);  // gaps and moments stay zero
  const auto fill = [&](std::size_t p, std::uint64_t first, std::span<float> out) {
    if (values)
      values(layout.spec.parameters[p], first, out);
    else
      initial_values(layout.spec.parameters[p], context.options.seed, first, out);
  };
  for_each_parameter(layout, block.range, [&](std::size_t p, std::uint64_t first, Range part) {
    const std::uint64_t skip = part.first - block.range.first;
    if (format.master == MasterDType::f32)
      fill(p, first, {reinterpret_cast<float*>(states.master) + skip, part.numel});
    else
      fill_rounded(reinterpret_cast<bf16*>(states.master) + skip, part.numel,
                   [&](std::uint64_t from, std::span<float> out) { fill(p, first + from, out); });
  });
}

}  // namespace headrace
