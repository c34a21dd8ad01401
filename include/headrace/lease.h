// A lease is the only way to hold a pooled buffer: move-only, gives the buffer back when destroyed, on any
// thread.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace headrace {

// What a lease returns its buffer to. give_back may be called from any thread and must not throw.
class LeaseOwner {
 public:
  virtual void give_back(std::span<std::byte> memory) noexcept = 0;

 protected:
  ~LeaseOwner() = default;
};

class HostLease {
 public:
  HostLease() = default;
  HostLease(LeaseOwner* owner, std::span<std::byte> memory) noexcept : owner_(owner), memory_(memory) {}
  // A lease on memory that someone else keeps alive: nothing happens at the end.
  static HostLease borrowed(std::span<std::byte> memory) noexcept { return {nullptr, memory}; }
  HostLease(HostLease&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), memory_(std::exchange(other.memory_, {})) {}
  HostLease& operator=(HostLease&& other) noexcept {
    if (this != &other) {
      reset();
      owner_ = std::exchange(other.owner_, nullptr);
      memory_ = std::exchange(other.memory_, {});
    }
    return *this;
  }
  HostLease(const HostLease&) = delete;
  HostLease& operator=(const HostLease&) = delete;
  ~HostLease() { reset(); }

  std::span<std::byte> memory() const noexcept { return memory_; }
  std::byte* data() const noexcept { return memory_.data(); }
  explicit operator bool() const noexcept { return memory_.data() != nullptr; }
  void reset() noexcept {
    if (owner_ != nullptr) owner_->give_back(memory_);
    owner_ = nullptr;
    memory_ = {};
  }

 private:
  LeaseOwner* owner_ = nullptr;
  std::span<std::byte> memory_;
};

}  // namespace headrace
