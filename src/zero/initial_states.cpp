#include "src/zero/initial_states.h"

#include <cstring>

#include "src/zero/initial_values.h"

namespace headrace {
namespace {

// Zero is zero bytes in every type.
void clear(StateFormat format, const StateArrays& states, std::uint64_t numel) {
  std::memset(states.master, 0, numel * (format.master == MasterDType::f32 ? sizeof(float) : sizeof(bf16)));
  format.master = MasterDType::none;
  if (moment_count(format) > 0) std::memset(states.moments[0].values, 0, state_bytes(format, numel));
}

}  // namespace

void fill_initial_states(const EngineContext& context, const OptimizerBlock& block, const StateArrays& states,
                         const Engine::ValueSource& values) {
  const UnitLayout& layout = context.units[block.unit].layout;
  const StateFormat format = kept_format(context.options);
  clear(format, states, block.range.numel);  // gaps and moments stay zero
  std::vector<float> wide;
  for_each_parameter(layout, block.range, [&](std::size_t p, std::uint64_t first, Range part) {
    const std::uint64_t skip = part.first - block.range.first;
    wide.resize(format.master == MasterDType::f32 ? 0 : part.numel);
    const std::span<float> out(wide.empty() ? reinterpret_cast<float*>(states.master) + skip : wide.data(),
                               part.numel);
    if (values)
      values(layout.spec.parameters[p], first, out);
    else
      initial_values(layout.spec.parameters[p], context.options.seed, first, out);
    if (!wide.empty())
      round_to(wide.data(), reinterpret_cast<bf16*>(states.master) + skip, DType::bf16, part.numel);
  });
}

}  // namespace headrace
