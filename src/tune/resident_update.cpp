#include "src/tune/resident_update.h"

#include <algorithm>
#include <chrono>

#include "headrace/elapsed.h"
#include "headrace/memory.h"
#include "headrace/optimizer_blocks.h"
#include "headrace/optimizer_update.h"
#include "headrace/statistics.h"
#include "src/tune/swap_pipeline.h"

namespace headrace::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Bytes bf16_bytes = 2, resident_bytes = Bytes{64} << 20;

// A block as the updater sees it: states end to end, the gradient and the rounded parameters beside them.
UpdateSpan block_at(const StateFormat& states, std::byte* memory, std::uint64_t numel) {
  UpdateSpan span;
  span.format = states;
  std::byte* low = memory + state_bytes(span.format, numel);
  span.state = state_arrays(span.format, memory, numel);
  span.gradient = low;
  span.gradient_dtype = DType::bf16;
  span.low_precision = low + bf16_bytes * numel;
  span.numel = numel;
  return span;
}

void fill_master(const UpdateSpan& block) {
  constexpr float value = 0.02f;
  if (block.format.master == MasterDType::f32)
    std::fill_n(reinterpret_cast<float*>(block.state.master), block.numel, value);
  else
    std::fill_n(reinterpret_cast<bf16*>(block.state.master), block.numel, to_bf16(value));
}

}  // namespace

double resident_update_seconds(const StateFormat& states, std::uint64_t numel, double budget_seconds,
                               Bytes memory_limit) {
  const Bytes stride = round_up(state_bytes(states, numel) + 2 * bf16_bytes * numel, 4096);
  const std::uint64_t count = std::max<std::uint64_t>(1, std::min(resident_bytes, memory_limit) / stride);
  MemoryBudget budget("host", ~Bytes{0});
  const HostBuffer memory(budget, MemoryTag::workspace, count * stride);
  const OptimizerArguments arguments = optimizer_of(states);
  for (std::uint64_t b = 0; b < count; ++b) {
    const UpdateSpan block = block_at(states, memory.data() + b * stride, numel);
    fill_master(block);
    std::fill_n(static_cast<std::uint16_t*>(const_cast<void*>(block.gradient)), numel, std::uint16_t{0x3a83});
    optimizer_update_parallel(block, arguments);
  }
  std::vector<double> seconds;
  double spent = 0;
  while (seconds.size() < 3 || spent < budget_seconds) {
    const auto start = Clock::now();
    optimizer_update_parallel(block_at(states, memory.data() + seconds.size() % count * stride, numel),
                              arguments);
    seconds.push_back(seconds_since(start));
    spent += seconds.back();
  }
  return median(std::move(seconds));
}

}  // namespace headrace::tune
