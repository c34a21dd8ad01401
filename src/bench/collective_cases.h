// One collective at one size: its input on the device, the call, and what must come out.
#pragma once

#include <memory>
#include <span>

#include "headrace/bench.h"

namespace headrace {

// What the cases of a rank share. Everything they enqueue is on the communicate lane.
struct CollectiveBench {
  Device& device;
  DeviceKernels& kernels;
  Communicator& communicator;
  std::byte* vector = nullptr;   // device memory: the vector of S bytes
  std::byte* slices = nullptr;   // device memory: one slice of each rank's vector
  float* sums = nullptr;         // device memory: the sum of those
  std::span<std::byte> staging;  // host memory for any of them

  int rank() const { return communicator.rank(); }
  int ranks() const { return communicator.size(); }
};

inline constexpr int broadcast_root = 0;

class CollectiveCase {
 public:
  virtual ~CollectiveCase() = default;
  // Puts this rank's part in place, and nothing where results will be. Blocks.
  virtual void load() = 0;
  virtual void call() = 0;  // enqueues the collective
  // Throws Error unless this rank holds what one call makes of what was loaded. Blocks.
  virtual void check() = 0;
};

std::shared_ptr<CollectiveCase> make_collective_case(const CollectiveBench& bench, Collective collective,
                                                     Bytes bytes);

// Slice `index` of n things that are divided among `ranks`: the first ones are longer by one.
struct Slice {
  std::uint64_t first = 0, count = 0;
};
constexpr Slice slice_of(std::uint64_t n, int index, int ranks) {
  const auto i = static_cast<std::uint64_t>(index), parts = static_cast<std::uint64_t>(ranks);
  const std::uint64_t longer = n % parts;
  return {n / parts * i + (i < longer ? i : longer), n / parts + (i < longer ? 1 : 0)};
}

// What of `bytes` the elements of a collective fill: those that add move whole fp32 values.
constexpr Bytes moved_bytes(Collective collective, Bytes bytes) {
  const bool adds = collective == Collective::reduce_scatter || collective == Collective::all_reduce;
  return adds ? bytes / sizeof(float) * sizeof(float) : bytes;
}

// From one of the arriving slices to the next, each aligned as the engine's are, and of all of them.
constexpr Bytes slice_stride_bytes(Bytes bytes, int ranks) {
  constexpr Bytes alignment = 64;
  return round_up(bytes / static_cast<Bytes>(ranks) + sizeof(float), alignment);
}
constexpr Bytes slices_bytes(Bytes bytes, int ranks) {
  return static_cast<Bytes>(ranks) * slice_stride_bytes(bytes, ranks);
}

}  // namespace headrace
