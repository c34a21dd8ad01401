// One block of a grid, its threads run as fibers of one CPU thread.
//
// A fiber runs one thread of the block after another until one of them waits (barrier, shuffle): only then
// does the next fiber start, so that kernels without barriers never switch. Warps start and go on in random
// order, their lanes from either end. A thread that has left counts as arrived at its block's barriers, as on
// hardware since Volta. Violations: threads that wait for each other, a warp barrier or shuffle whose mask
// names a lane that has left or waits elsewhere, a shuffle from a lane outside its mask.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

namespace cuda_emulation {

inline constexpr int warp_lanes = 32;

class BlockScheduler;

class Block {
 public:
  Block();
  ~Block();
  dim3 dimensions, grid;
  uint3 index{};

  const uint3& thread_index() const { return thread_index_; }
  int lane() const { return thread_ % warp_lanes; }
  void wait_for_block();
  void wait_for_warp(unsigned mask);

  template <class T>
  T shuffle(unsigned mask, T value, int source_lane) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = exchange(mask, bits, source_lane);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }

  // Runs `thread` once for every thread of block `at` of a grid, in an order that `seed` gives. `kernel`
  // names it in violations.
  void run(const char* kernel, dim3 grid_in, dim3 dimensions_in, uint3 at, std::size_t shared_bytes,
           std::uint64_t seed, const std::function<void()>& thread);
  void* dynamic_shared() const { return shared_; }

 private:
  friend class BlockScheduler;
  std::uint64_t exchange(unsigned mask, std::uint64_t bits, int source_lane);

  uint3 thread_index_{};  // of the thread that runs now
  int thread_ = 0;
  void* shared_ = nullptr;
  std::unique_ptr<BlockScheduler> scheduler_;
};

// The block that the calling CPU thread runs.
inline constinit thread_local Block* running_block = nullptr;
inline Block& block() {
  return *running_block;
}
inline void* dynamic_shared() {
  return block().dynamic_shared();
}

}  // namespace cuda_emulation
