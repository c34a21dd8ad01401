#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {

StagingPool::StagingPool(MemoryBudget& budget, MemoryTag tag, Bytes buffer_bytes, std::uint32_t count)
    : buffer_bytes_(round_up(buffer_bytes, 4096)),
      count_(count),
      buffer_(budget, tag, buffer_bytes_ * count) {
  HEADRACE_CHECK(count > 0 && buffer_bytes > 0, "a pool of {} buffers of {} bytes", count, buffer_bytes);
  free_.reserve(count);  // give_back must not allocate
  for (std::uint32_t i = count; i > 0; --i) free_.push_back(buffer_.data() + (i - 1) * buffer_bytes_);
}

StagingPool::~StagingPool() = default;  // leases end before their pool

HostLease StagingPool::acquire() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return !free_.empty(); });
  return take_free();
}

HostLease StagingPool::try_acquire() {
  const std::lock_guard lock(mutex_);
  return free_.empty() ? HostLease() : take_free();
}

HostLease StagingPool::take_free() {
  std::byte* memory = free_.back();
  free_.pop_back();
  peak_in_use_ = std::max(peak_in_use_, count_ - static_cast<std::uint32_t>(free_.size()));
  return {this, {memory, buffer_bytes_}};
}

std::uint32_t StagingPool::peak_in_use() const {
  const std::lock_guard lock(mutex_);
  return peak_in_use_;
}

void StagingPool::give_back(std::span<std::byte> memory) noexcept {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(memory.data());
  }
  freed_.notify_one();
}

}  // namespace headrace
