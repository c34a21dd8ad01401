// What a swapped step sees of an accelerator: lanes, and a memory that has addresses but keeps nothing. A
// download brings known bytes, an upload reads what it is given; both cost the host's memory what a transfer
// costs it. So the low-precision parameters and gradients of any number of parameters take no host memory,
// as they take none where the device has its own.
#pragma once

#include <vector>

#include "headrace/device.h"
#include "headrace/kernels.h"

namespace headrace::tune {

// Every bf16 of a download; as fp32 or fp64 it is finite and not denormal too.
inline constexpr std::uint16_t pattern_bf16 = 0x3a83;  // about 0.001

class PatternDevice final : public Device {
 public:
  // The lanes and host memory are those of `lanes`, which outlives this. `capacity_bytes` of addresses are
  // reserved, which nobody can touch.
  PatternDevice(Device& lanes, Bytes capacity_bytes);
  ~PatternDevice() override;

  const DeviceInfo& info() const override { return info_; }
  std::byte* arena() override { return arena_; }
  // A copy within the device does nothing.
  void copy(Lane lane, void* destination, const void* source, Bytes bytes) override;
  void fill_zero(Lane lane, void* destination, Bytes bytes) override;
  void enqueue(Lane lane, const char* name, std::function<void()> work) override;
  Event record(Lane lane) override { return lanes_.record(lane); }
  void wait(Lane lane, const Event& event) override { lanes_.wait(lane, event); }
  void host_wait(const Event& event) override { lanes_.host_wait(event); }
  void synchronize() override { lanes_.synchronize(); }
  bool pin(std::span<std::byte> memory) override { return lanes_.pin(memory); }
  void unpin(std::span<std::byte> memory) noexcept override { lanes_.unpin(memory); }
  LaneTimes times(Lane lane) const override { return lanes_.times(lane); }

 private:
  bool holds(const void* address) const;

  Device& lanes_;
  DeviceInfo info_;
  std::byte* arena_ = nullptr;
  std::vector<std::byte> pattern_;                          // what a download brings, piece by piece
  std::array<std::vector<std::byte>, lane_count> dropped_;  // where a lane's uploads end
};

// Kernels of that device: they leave its memory as it is, so that a gradient's norm is made of the pattern.
class PatternKernels final : public DeviceKernels {
 public:
  void sum_slices(Lane, std::span<const void* const>, DType, std::uint64_t, float*, bool) override {}
  void round_and_norm(Lane, const float*, void*, DType, std::uint64_t, double*) override {}
  void update(Lane lane, const UpdateSpan& span, const OptimizerArguments& arguments) override;
  void first_non_finite(Lane, const void*, DType, std::uint64_t, std::uint64_t*) override {}
  void round_to(Lane, const float*, void*, DType, std::uint64_t) override {}
};

}  // namespace headrace::tune
