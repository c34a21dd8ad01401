// The device seam: one arena with a hard capacity, four in-order lanes, events, copies. Implemented by the
// CPU device (src/device: lanes are threads) and by CUDA (gpu: lanes are streams).
//
// Threads: one owner thread calls everything except where said. Nothing blocks except host_wait and
// synchronize. Work enqueued on one lane runs in order; different lanes are ordered by events alone. Memory
// named in a call must stay valid until the lane has passed it. An error stops the work of all lanes (what
// follows would use data never made; copies and kernels that CUDA has been given already still run), while
// events still fire; it is thrown, with lane and operation named, by every later host_wait and synchronize.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "headrace/bytes.h"

namespace headrace {

enum class Lane : std::uint8_t { compute, upload, download, communicate };
inline constexpr std::size_t lane_count = 4;
constexpr std::string_view name_of(Lane lane) {
  constexpr std::string_view names[lane_count] = {"compute", "upload", "download", "communicate"};
  return names[static_cast<std::size_t>(lane)];
}

// A point in a lane. Cheap to copy; a default event is already reached.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
  };
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }
  explicit operator bool() const { return state_ != nullptr; }

 private:
  std::shared_ptr<State> state_;
};

struct DeviceInfo {
  std::string name;
  Bytes memory_capacity_bytes = 0;
  bool async_copy = false;
  bool peer_access = false;
  bool host_addressable = false;  // host code may touch arena memory (the CPU device)
  int compute_threads = 1;
  int copy_engines = 0;              // copies that run at the same time
  std::string link = {};             // between host and device, in words: "PCIe 5.0 x16", "memcpy"
  double link_bytes_per_second = 0;  // what the link carries at most in each direction; 0: unknown
  std::string near = {};             // cores and drives of its NUMA node (locality.h); empty: all, or unknown
};

// Seconds since construction: what a lane did, and how long it waited for events of each other lane.
struct LaneTimes {
  double busy_seconds = 0;
  std::array<double, lane_count> stalled_seconds{};
  Bytes copied_bytes = 0;
  double stalled_on(Lane lane) const { return stalled_seconds[static_cast<std::size_t>(lane)]; }
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // The arena: memory_capacity_bytes starting here, 4096-byte aligned. DeviceMemory (memory.h) divides it.
  virtual std::byte* arena() = 0;

  // Copies `bytes` on a lane. Host memory should be pinned; on the CPU device, Lane::upload and
  // Lane::download are paced to the link's bandwidth when one is set.
  virtual void copy(Lane lane, void* destination, const void* source, Bytes bytes) = 0;
  virtual void fill_zero(Lane lane, void* destination, Bytes bytes) = 0;
  // Runs a host function in lane order. `name` must be a string of static storage; it names the work in
  // traces and errors.
  virtual void enqueue(Lane lane, const char* name, std::function<void()> work) = 0;

  virtual Event record(Lane lane) = 0;
  virtual void wait(Lane lane, const Event& event) = 0;  // later work of `lane` waits for the event
  virtual void host_wait(const Event& event) = 0;        // blocks the caller
  virtual void synchronize() = 0;                        // blocks until every lane is idle

  // Makes a host range fast to copy. pin returns false (after one warning) where that is refused. Any thread.
  virtual bool pin(std::span<std::byte> memory) = 0;
  virtual void unpin(std::span<std::byte> memory) noexcept = 0;

  virtual LaneTimes times(Lane lane) const = 0;
};

struct CpuDeviceOptions {
  Bytes memory_bytes = 0;
  int compute_threads = 0;  // threads of the compute lane's kernels; 0: all cores this process may use
  double link_bytes_per_second = 0.0;  // paces upload and download each; 0: not paced
  // For tests: each piece of work is held back by a random time up to this, so that an order that no event
  // enforces shows.
  double largest_delay_seconds = 0.0;
};
std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options);

struct CudaDeviceOptions {
  Bytes memory_bytes = 0;
  int local_rank = 0, local_size = 1;  // rank r of a host takes its device r
};
// Both throw UsageError: saying how to get it when built without CUDA, or why this machine has none to give.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);
// Free memory of that device, less a reserve for the context, kernels and NCCL.
Bytes available_cuda_memory(int local_rank);

}  // namespace headrace
