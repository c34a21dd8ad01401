// One block of a grid, its threads run as fibers of one CPU thread.
//
// A fiber runs one thread of the block after another until one of them waits (barrier, shuffle): only then does the
// next fiber start, so that kernels without barriers never switch. Warps that can go on are resumed in random order.
// Violations: a barrier that some threads of a block never reach, a shuffle whose mask names a lane that has left or
// waits elsewhere.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

namespace cuda_emulation {

class Block {
 public:
  Block();
  ~Block();
  dim3 dimensions, grid;
  uint3 index;

  const uint3& thread_index() const;
  int lane() const;
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

  // Runs all threads of block `at` of the grid. `thread` is called once for each.
  void run(dim3 grid_in, dim3 dimensions_in, uint3 at, std::size_t shared_bytes,
           const std::function<void()>& thread);
  void* dynamic_shared();

 private:
  std::uint64_t exchange(unsigned mask, std::uint64_t bits, int source_lane);
  struct Scheduler;
  std::unique_ptr<Scheduler> scheduler_;
};

// Of the calling CPU thread.
Block& block();
inline void* dynamic_shared() { return block().dynamic_shared(); }

}  // namespace cuda_emulation
