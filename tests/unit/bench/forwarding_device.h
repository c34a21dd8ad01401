// A device that passes everything on: tests change one call of it.
#pragma once

#include "headrace/device.h"

namespace headrace::testing {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& device) : device_(device), info_(device.info()) {}
  const DeviceInfo& info() const override { return info_; }
  std::byte* arena() override { return device_.arena(); }
  void copy(Lane lane, void* destination, const void* source, Bytes bytes) override {
    device_.copy(lane, destination, source, bytes);
  }
  void fill_zero(Lane lane, void* destination, Bytes bytes) override {
    device_.fill_zero(lane, destination, bytes);
  }
  void enqueue(Lane lane, const char* name, std::function<void()> work) override {
    device_.enqueue(lane, name, std::move(work));
  }
  Event record(Lane lane) override { return device_.record(lane); }
  void wait(Lane lane, const Event& event) override { device_.wait(lane, event); }
  void host_wait(const Event& event) override { device_.host_wait(event); }
  void synchronize() override { device_.synchronize(); }
  bool pin(std::span<std::byte> memory) override { return device_.pin(memory); }
  void unpin(std::span<std::byte> memory) noexcept override { device_.unpin(memory); }
  LaneTimes times(Lane lane) const override { return device_.times(lane); }

 protected:
  Device& device_;
  DeviceInfo info_;
};

}  // namespace headrace::testing
