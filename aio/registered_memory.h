// The ring's table of memory: regions that callers, and the path itself, have the kernel lock in advance.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>

#include "aio/io_path.h"
#include "aio/memory_table.h"
#include "aio/uring.h"

namespace headrace::aio {

// Thread-safe, beside other calls of the ring.
class RegisteredMemory {
 public:
  explicit RegisteredMemory(Uring& ring) : ring_(ring) {}
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  // Blocks while the kernel locks the pages. What it refuses, with one warning, is not found.
  void add(RegionId region, std::span<std::byte> memory);
  // A request that was issued before keeps what it uses; one that the kernel looks at later fails (EFAULT).
  void remove(RegionId region);
  // The place that holds all of [address, address + bytes); -1 where none does.
  int place_of(const std::byte* address, Bytes bytes) const;

 private:
  Uring& ring_;
  mutable std::mutex mutex_;
  MemoryTable table_{Uring::buffer_places, Uring::max_buffer_bytes};
};

}  // namespace headrace::aio
