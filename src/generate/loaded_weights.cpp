#include "src/generate/loaded_weights.h"

#include <algorithm>

#include "headrace/errors.h"
#include "headrace/optimizer_update.h"

namespace headrace {
namespace {

constexpr std::uint64_t piece_numel = std::uint64_t{1} << 20;
constexpr Bytes memory_alignment = 64;  // of what DeviceMemory hands out

}  // namespace

LoadedWeights::LoadedWeights(WeightSource& source, const std::vector<UnitSpec>& units, DType dtype,
                             Device& device, DeviceMemory& memory, const std::function<bool()>& go_on)
    : high_(piece_numel), low_(piece_numel * size_of(dtype)) {
  for (const UnitSpec& unit : units) {
    layouts_.push_back(make_unit_layout(unit));
    units_.push_back(memory.persistent(MemoryTag::parameters, layouts_.back().numel * size_of(dtype)));
  }
  for (std::size_t u = 0; u < layouts_.size() && whole_; ++u)
    for (std::size_t p = 0; p < layouts_[u].offsets.size() && whole_; ++p)
      whole_ = load(source, layouts_[u].spec.parameters[p],
                    units_[u] + layouts_[u].offsets[p] * size_of(dtype), dtype, device, go_on);
  high_ = {}, low_ = {};
}

Bytes LoadedWeights::bytes_of(const std::vector<UnitSpec>& units, DType dtype) {
  Bytes bytes = 0;
  for (const UnitSpec& unit : units)
    bytes += round_up(make_unit_layout(unit).numel * size_of(dtype), memory_alignment);
  return bytes;
}

bool LoadedWeights::load(WeightSource& source, const ParameterSpec& parameter, std::byte* to, DType dtype,
                         Device& device, const std::function<bool()>& go_on) {
  const std::uint64_t numel = parameter.numel();
  for (std::uint64_t first = 0; first < numel; first += piece_numel) {
    if (!go_on()) return false;
    const std::uint64_t count = std::min(piece_numel, numel - first);
    source.read(parameter, first, std::span(high_).first(count));
    round_to(high_.data(), low_.data(), dtype, count);
    device.copy(Lane::compute, to + first * size_of(dtype), low_.data(), count * size_of(dtype));
    device.host_wait(device.record(Lane::compute));
  }
  return true;
}

std::byte* LoadedWeights::gradient_buffer(UnitId unit) {
  HEADRACE_CHECK(false, "a gradient of unit {} is asked for, and there are weights alone", unit);
  return nullptr;
}

}  // namespace headrace
