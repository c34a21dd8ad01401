#include <algorithm>
#include <limits>

#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {
namespace {

constexpr Bytes alignment = 64;

// Rounding must not wrap an absurd request round to a small one.
Bytes aligned(Bytes bytes) {
  return bytes > std::numeric_limits<Bytes>::max() - alignment ? bytes : round_up(bytes, alignment);
}

}  // namespace

DeviceMemory::DeviceMemory(std::byte* base, MemoryBudget& budget) : base_(base), budget_(budget) {}

std::byte* DeviceMemory::persistent(MemoryTag tag, Bytes bytes) {
  const Bytes rounded = aligned(bytes);
  budget_.charge(tag, rounded);
  std::byte* memory = base_ + persistent_used_;
  persistent_used_ += rounded;
  return memory;
}

std::byte* DeviceMemory::push(MemoryTag tag, Bytes bytes) {
  const Bytes rounded = aligned(bytes);
  budget_.charge(tag, rounded);  // the sum of both regions, so they cannot meet
  pushed_.push_back({tag, rounded, stack_used_});
  stack_used_ += rounded;
  stack_peak_ = std::max(stack_peak_, stack_used_);
  return base_ + budget_.limit() / alignment * alignment - stack_used_;
}

void DeviceMemory::pop_to(Mark mark) {
  HEADRACE_CHECK(mark <= stack_used_, "pop to {} of a stack of {} bytes", mark, stack_used_);
  while (stack_used_ > mark) {
    const Pushed top = pushed_.back();
    pushed_.pop_back();
    HEADRACE_CHECK(top.stack_before >= mark, "pop into the middle of a block");
    budget_.refund(top.tag, top.bytes);
    stack_used_ = top.stack_before;
  }
}

}  // namespace headrace
