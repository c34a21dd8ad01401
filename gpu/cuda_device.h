// The CUDA device: lanes are streams, the arena is one allocation.
#pragma once

#include <array>
#include <map>
#include <mutex>

#include "gpu/cuda_lane.h"
#include "gpu/kernel_fault.h"
#include "headrace/device.h"

namespace headrace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options);
  ~CudaDevice() override;

  const DeviceInfo& info() const override { return info_; }
  std::byte* arena() override { return arena_; }
  void copy(Lane lane, void* destination, const void* source, Bytes bytes) override;
  void fill_zero(Lane lane, void* destination, Bytes bytes) override;
  void enqueue(Lane lane, const char* name, std::function<void()> work) override;
  Event record(Lane lane) override;
  void wait(Lane lane, const Event& event) override;
  void host_wait(const Event& event) override;
  void synchronize() override;
  bool pin(std::span<std::byte> memory) override;
  void unpin(std::span<std::byte> memory) noexcept override;
  LaneTimes times(Lane lane) const override;

  KernelQueue& queue(Lane lane) { return at(lane); }
  // Pinned memory where a kernel says that its input was wrong; looked at by every wait of the host.
  KernelFault* fault_word() { return static_cast<KernelFault*>(fault_.get()); }
  bool in_arena(const void* address) const;

 private:
  enum class Place : std::uint8_t { device, pinned, pageable };
  Place place_of(const void* address, Bytes bytes) const;
  CudaLane& at(Lane lane) { return *lanes_[static_cast<std::size_t>(lane)]; }
  void check_wait(cudaError_t status);
  void note_failure(cudaError_t status);
  void allocate_arena(Bytes bytes);
  void use_device() const noexcept;

  int device_ = 0;
  DeviceInfo info_;
  FirstFailure failure_;
  std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  DeviceBytes allocation_;
  std::byte* arena_ = nullptr;
  PinnedBytes fault_;
  std::array<std::unique_ptr<CudaLane>, lane_count> lanes_;
  mutable std::mutex pinned_mutex_;
  std::map<const std::byte*, Bytes> pinned_;  // ranges by their start
};

// The CUDA device that `device` is. A programming error when it is another one.
CudaDevice& cuda_device(Device& device);
// Null when it is another one.
CudaDevice* as_cuda_device(Device& device);

}  // namespace headrace
