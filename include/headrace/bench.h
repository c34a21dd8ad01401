// Benchmarks of what a run stands on: the link between host and device, and the collectives over ranks. They
// go through the seams, so a figure holds what the engine gets, queues and waits included.
//
// [Note: rounds] The cases of a benchmark alternate: a round takes one sample of each, so that a noisy
// neighbour slows them all, and a figure is the median over the rounds. A sample is as many operations, one
// behind the other, as fill its share of the case's time. What a sample moves is verified, each byte at its
// place: wrong data is an Error that names the case and the offset.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/communicator.h"
#include "headrace/device.h"
#include "headrace/kernels.h"
#include "headrace/memory.h"

namespace headrace {

struct BenchOptions {
  std::vector<Bytes> sizes;       // of one operation, each above 0
  double seconds_per_case = 0.5;  // time that is measured; at least 3 samples are taken whatever they cost
};

// What the caller decides and is told while a benchmark runs, on the thread that runs it.
struct BenchControl {
  std::function<bool()> stop_requested;  // ends the benchmark after the sample in progress
  std::function<void(double done, std::string_view name)> progress;  // done: 0 to 1
};

struct BenchResult {
  std::string group, name;  // name: "pinned upload 2MiB"; results of one group belong together
  Bytes bytes = 0;
  double seconds = 0;                         // of one operation
  std::optional<double> algorithm_bandwidth;  // of collectives between ranks, in GB/s
  double value = 0;
  std::string unit;               // "GB/s" (1e9 bytes), or "us" where nothing moves between ranks
  std::optional<double> ceiling;  // in the same unit; none where it is not known
  int rounds = 0;
  std::optional<double> ratio() const { return ceiling ? std::optional(value / *ceiling) : std::nullopt; }
};

struct BenchReport {
  std::vector<BenchResult> results;  // of the cases that have a sample
  std::string ceiling;               // what the ceiling is, in words
  std::vector<std::string> notes;
  bool stopped = false;
};

// Memory that a benchmark takes of its device and, charged to the budget it is given, of the host.
struct BenchMemory {
  Bytes device_bytes = 0, host_bytes = 0;
};

// Copies between host and device, by size: pinned and pageable host memory; upload, download, and both at
// once (the sum of the two directions). Ceiling: the link's rate where it is known, otherwise memcpy between
// the same buffers, one thread a direction, in the same rounds.
std::vector<Bytes> default_link_sizes();
BenchMemory link_bench_memory(Bytes largest_size);
BenchReport bench_link(Device& device, MemoryBudget& host, const BenchOptions& options,
                       const BenchControl& control);

enum class Collective : std::uint8_t { all_gather, reduce_scatter, all_reduce, broadcast, all_to_all };
std::string_view name_of(Collective collective);

// In GB/s, as nccl-tests define them. S is the whole vector, which a rank holds before or after the operation
// (all_gather, reduce_scatter and all_to_all are of n slices of it). Algorithm bandwidth is S/t; bus
// bandwidth is that times 2(n-1)/n for all_reduce, 1 for broadcast, (n-1)/n for the others, which makes it
// comparable with the rate of a link at any number of ranks.
struct CollectiveBandwidth {
  double algorithm = 0, bus = 0;
};
CollectiveBandwidth collective_bandwidth(Collective collective, Bytes bytes, double seconds, int ranks);

// Collectives on device memory, by size S, and once at a size that no number of ranks divides. all_reduce and
// reduce_scatter are of fp32; reduce_scatter is the engine's: all_to_all, then sum_slices. The time is that
// of the slowest rank. Ceiling of the bus bandwidth, where ranks exchange through the host's memory: copies
// of what each rank receives, by all that receive at once, in the same rounds. A collective itself: every
// rank calls, with the same options.
inline constexpr Bytes uneven_collective_bytes = 1'000'007;  // 250001 elements of 4 bytes
std::vector<Bytes> default_collective_sizes();
BenchMemory collective_bench_memory(Bytes largest_size, int ranks);
BenchReport bench_collectives(Device& device, DeviceKernels& kernels, Communicator& communicator,
                              MemoryBudget& host, const BenchOptions& options, const BenchControl& control);

// "2MiB", "1000007B": exact, and what parse_bytes reads.
std::string size_text(Bytes bytes);

}  // namespace headrace
