// Device memory of one operation: on the stack from construction to the end of the scope. Kernels that were
// launched within it may still use it, because later ones of the lane, which may get the same memory, run
// after them.
#pragma once

#include "headrace/memory.h"

namespace headrace {

class Scratch {
 public:
  Scratch(DeviceMemory& memory, Bytes bytes)
      : memory_(memory), mark_(memory.mark()), data_(memory.push(MemoryTag::workspace, bytes)) {}
  ~Scratch() { memory_.pop_to(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  DeviceMemory& memory_;
  DeviceMemory::Mark mark_;
  std::byte* data_;
};

}  // namespace headrace
