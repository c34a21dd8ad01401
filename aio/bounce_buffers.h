// Aligned memory that requests go through where the caller's is not aligned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aio/aligned_memory.h"

namespace headrace::aio {

// There are none before publish(). The owner serialises the calls, but for allocate(), which may run beside
// those of others.
class BounceBuffers {
 public:
  // Memory for `count` buffers of `bytes` each, in huge pages where the kernel has some. Throws
  // std::bad_alloc. Once.
  std::span<std::byte> allocate(std::uint32_t count, Bytes bytes);
  void publish();  // after that

  bool empty() const { return free_.empty(); }
  std::byte* take();
  void give_back(std::byte* buffer) { free_.push_back(buffer); }

 private:
  AlignedMemory memory_;
  std::uint32_t count_ = 0;
  Bytes buffer_bytes_ = 0;
  std::vector<std::byte*> free_;
};

}  // namespace headrace::aio
