// A device that executes nothing: the model's own code runs on it to find out what memory it takes and what
// hooks it calls. Its arena has addresses but no memory.
#pragma once

#include "headrace/device.h"

namespace headrace {

class NullDevice final : public Device {
 public:
  explicit NullDevice(int compute_threads);
  const DeviceInfo& info() const override { return info_; }
  std::byte* arena() override;
  void copy(Lane, void*, const void*, Bytes) override {}
  void fill_zero(Lane, void*, Bytes) override {}
  void enqueue(Lane, const char*, std::function<void()>) override {}
  Event record(Lane) override { return {}; }
  void wait(Lane, const Event&) override {}
  void host_wait(const Event&) override {}
  void synchronize() override {}
  bool pin(std::span<std::byte>) override { return true; }
  void unpin(std::span<std::byte>) noexcept override {}
  LaneTimes times(Lane) const override { return {}; }

 private:
  DeviceInfo info_;
};

}  // namespace headrace
