// Pops what was pushed on the device's stack during its life.
#pragma once

#include "headrace/memory.h"

namespace headrace {

class StackScope {
 public:
  explicit StackScope(DeviceMemory& memory) : memory_(memory), mark_(memory.mark()) {}
  ~StackScope() { memory_.pop_to(mark_); }
  StackScope(const StackScope&) = delete;
  StackScope& operator=(const StackScope&) = delete;

 private:
  DeviceMemory& memory_;
  DeviceMemory::Mark mark_;
};

}  // namespace headrace
