// What one piece of stream work touched, and what the host touches.
//
// Kernels, and host code compiled for it, call back at each load and store (access_hooks.cpp); copies and
// library calls declare theirs. An access outside of its range is a violation at once; accesses that nothing
// orders are found when the work ends.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/cuda_emulation/clocks.h"
#include "support/cuda_emulation/memory.h"

namespace cuda_emulation {

class Accesses {
 public:
  // `alias` is where the work touches it. Memory that is neither a device's nor registered is of no concern
  // here.
  void note(std::uintptr_t alias, std::size_t bytes, bool write);
  // Compares with what others touched, and forgets.
  void finish(const Moment& moment);

 private:
  struct Touched {
    const MemoryRange* range;
    std::vector<std::uint64_t> read, written;  // a bit a granule
    std::vector<std::uint32_t> words;          // those with a bit
  };
  Touched* find(std::uintptr_t alias, std::size_t bytes);
  std::vector<Touched> touched_;
  Touched* last_ = nullptr;
  // Pages found to be of no concern, each in the place of its number: shared memory is some of them.
  static constexpr std::uintptr_t page_bytes = 4096;
  std::uintptr_t& place_of_no_concern(std::uintptr_t alias) {
    return pages_of_no_concern_[alias / page_bytes % pages_of_no_concern_.size()];
  }
  std::array<std::uintptr_t, 256> pages_of_no_concern_{};
};

// The accesses of the work that this thread runs; null on host threads.
inline constinit thread_local Accesses* running_accesses = nullptr;

// The host frees or unregisters the range: what still uses it must be ordered before, as before a write.
void note_freeing(const MemoryRange& range);
// A violation when the address is of device memory that was freed.
void refuse_freed(std::uintptr_t address);

void note_host_access(std::uintptr_t address, std::size_t bytes, bool write);

// The linker may have taken the instrumented copy of a template that the emulation uses too: its accesses are
// no one's.
inline constinit thread_local bool noting = false;

inline void note_access(const void* address, std::size_t bytes, bool write) {
  if (noting) return;
  noting = true;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (running_accesses != nullptr)
    running_accesses->note(at, bytes, write);
  else
    note_host_access(at, bytes, write);
  noting = false;
}

// "device allocation 3, bytes 64 to 128 of 4096".
std::string describe(const MemoryRange& range, std::size_t offset, std::size_t bytes);

}  // namespace cuda_emulation
