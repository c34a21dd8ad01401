// The CPU device: an arena of exactly memory_bytes, lanes as threads, and a paced link, so that "larger than
// device memory" and the overlap of transfers are real and testable without a GPU.
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "headrace/log.h"
#include "src/device/lane_thread.h"
#include "src/device/link_pacer.h"

namespace headrace {
namespace {

constexpr Bytes page_bytes = 4096;

std::string link_name(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("paced at {:.4g} GB/s", bytes_per_second * 1e-9) : "memcpy";
}

// Locks the pages of [memory] as they are first touched, so that untouched ones still cost nothing.
bool lock_pages(std::span<std::byte> memory) {
  const auto start = reinterpret_cast<std::uintptr_t>(memory.data()) / page_bytes * page_bytes;
  const auto end = reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size();
  return ::mlock2(reinterpret_cast<void*>(start), end - start, MLOCK_ONFAULT) == 0;
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options)
      : pacers_{LinkPacer(0), LinkPacer(options.link_bytes_per_second),
                LinkPacer(options.link_bytes_per_second), LinkPacer(0)} {
    info_ = {.name = "cpu",
             .memory_capacity_bytes = options.memory_bytes,
             .async_copy = true,
             .peer_access = false,
             .host_addressable = true,
             .compute_threads = options.compute_threads > 0 ? options.compute_threads : cpu_threads(),
             .copy_engines = 2,  // the threads of the upload and the download lane
             .link = link_name(options.link_bytes_per_second),
             .link_bytes_per_second = options.link_bytes_per_second};
    map_arena();
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      lanes_[lane] =
          std::make_unique<LaneThread>(static_cast<Lane>(lane), failure_, options.largest_delay_seconds);
  }

  ~CpuDevice() override {
    for (auto& lane : lanes_) drain(*lane);  // a lane may still wait for another one
    for (auto& lane : lanes_) lane.reset();
    if (arena_bytes_ > 0) ::munmap(arena_, arena_bytes_);
  }

  const DeviceInfo& info() const override { return info_; }
  std::byte* arena() override { return arena_; }

  void copy(Lane lane, void* destination, const void* source, Bytes bytes) override {
    if (bytes == 0) return;
    LinkPacer& pacer = pacers_[index(lane)];
    LaneThread& thread = at(lane);
    thread.enqueue("copy", [=, &pacer, &thread] {
      pacer.run(bytes, [&] { std::memcpy(destination, source, bytes); });
      thread.add_copied(bytes);
    });
  }

  void fill_zero(Lane lane, void* destination, Bytes bytes) override {
    if (bytes > 0) at(lane).enqueue("fill", [=] { std::memset(destination, 0, bytes); });
  }

  void enqueue(Lane lane, const char* name, std::function<void()> work) override {
    at(lane).enqueue(name, std::move(work));
  }

  Event record(Lane lane) override { return Event(at(lane).record()); }

  void wait(Lane lane, const Event& event) override {
    if (event) at(lane).wait(std::static_pointer_cast<LaneEvent>(event.state()));
  }

  void host_wait(const Event& event) override {
    if (event) std::static_pointer_cast<LaneEvent>(event.state())->wait();
    failure_.rethrow_if_failed();
  }

  void synchronize() override {
    for (auto& lane : lanes_) drain(*lane);
    failure_.rethrow_if_failed();
  }

  // A copy here is a memcpy, so pinning keeps memory from being swapped out and changes nothing else.
  bool pin(std::span<std::byte> memory) override {
    if (memory.empty() || lock_pages(memory)) return true;
    warn_once(
        "pin",
        fmt::format("{} of host memory could not be pinned ({}): it stays pageable and may be swapped out, "
                    "results are the same. Raise the limit of locked memory (ulimit -l) to pin it.",
                    format_bytes(memory.size()), std::strerror(errno)));
    return false;
  }

  void unpin(std::span<std::byte> memory) noexcept override {
    if (!memory.empty()) ::munlock(memory.data(), memory.size());
  }

  LaneTimes times(Lane lane) const override { return lanes_[index(lane)]->times(); }

 private:
  static std::size_t index(Lane lane) { return static_cast<std::size_t>(lane); }
  LaneThread& at(Lane lane) { return *lanes_[index(lane)]; }
  static void drain(LaneThread& lane) { lane.record()->wait(); }

  void map_arena() {
    arena_bytes_ = round_up(info_.memory_capacity_bytes, page_bytes);
    if (arena_bytes_ == 0) return;
    void* address = ::mmap(nullptr, arena_bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
      detail::throw_errno(__FILE__, __LINE__,
                          fmt::format("map {} as device memory", format_bytes(arena_bytes_)), errno);
    arena_ = static_cast<std::byte*>(address);
    ::madvise(arena_, arena_bytes_, MADV_HUGEPAGE);  // advice only: fewer faults and TLB misses in kernels
  }

  DeviceInfo info_;
  std::byte* arena_ = nullptr;
  Bytes arena_bytes_ = 0;
  FirstFailure failure_;
  std::array<LinkPacer, lane_count> pacers_;
  std::array<std::unique_ptr<LaneThread>, lane_count> lanes_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace headrace
