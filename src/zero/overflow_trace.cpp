#include "src/zero/overflow_trace.h"

#include <algorithm>

#include "headrace/finite.h"

namespace headrace {

Bytes overflow_trace_bytes(std::size_t units, const EngineOptions& options) {
  return options.searches_loss_scale() ? units * sizeof(std::uint64_t) : 0;
}

OverflowTrace::OverflowTrace(EngineContext& context) : context_(context) {
  const Bytes bytes = overflow_trace_bytes(context.units.size(), context.options);
  if (bytes == 0) return;
  device_first_ =
      reinterpret_cast<std::uint64_t*>(context.device_memory.persistent(MemoryTag::workspace, bytes));
  host_ = HostBuffer(context.host_budget, MemoryTag::staging, bytes);
  host_pin_ = context.pin(host_.memory());
}

std::span<std::uint64_t> OverflowTrace::host_first() const {
  return {reinterpret_cast<std::uint64_t*>(host_.data()), context_.units.size()};
}

void OverflowTrace::arm(bool armed) {
  armed_ = armed && device_first_ != nullptr;
  if (!armed_) return;
  std::ranges::fill(host_first(), all_finite);
  context_.device.copy(Lane::communicate, device_first_, host_.data(), host_first().size_bytes());
}

void OverflowTrace::look_at(UnitId unit, const std::byte* gradient) {
  if (!armed_) return;
  context_.kernels.first_non_finite(Lane::communicate, gradient, context_.options.dtype,
                                    context_.units[unit].layout.numel, device_first_ + unit);
}

GradientPlace OverflowTrace::first() {
  if (!armed_) return {};
  context_.device.copy(Lane::communicate, host_.data(), device_first_, host_first().size_bytes());
  context_.device.synchronize();
  for (std::size_t unit = 0; unit < host_first().size(); ++unit)
    if (host_first()[unit] != all_finite) return {unit, host_first()[unit]};
  return {};
}

}  // namespace headrace
