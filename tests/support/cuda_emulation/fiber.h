// Stacks that run in turn on one CPU thread.
#pragma once

#include <cstddef>

namespace cuda_emulation {

class Fiber {
 public:
  using Entry = void (*)(void* argument);
  Fiber(Entry entry, void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // From the CPU thread's own stack: runs the fiber until it calls suspend(). `entry` never returns.
  void resume();
  // From within: back to where resume() was called.
  void suspend();
  // The first thing that `entry` does.
  void entered();

 private:
  void* mapping_;
  void* stack_;  // saved while it does not run
  void* caller_ = nullptr;
  // For the address sanitizer, which keeps frames of its own for each stack.
  void* own_frames_ = nullptr;
  void* caller_frames_ = nullptr;
  const void* caller_bottom_ = nullptr;
  std::size_t caller_bytes_ = 0;
};

}  // namespace cuda_emulation
