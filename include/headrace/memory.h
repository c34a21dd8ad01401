// Budgets with tags and the host memory they stand for. Every large allocation goes through a MemoryBudget,
// so that the limit of a tier is hard, peaks per tag can be compared with the plan, and an out-of-memory
// error prints the ledger.
//
// [Note: three regions of device memory] Persistent state grows from the bottom, activations are a stack from
// the top, and gather and bucket buffers are a fixed ring between them; sizes come from the plan, so
// fragmentation cannot arise.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/lease.h"

namespace headrace {

enum class MemoryTag : std::uint8_t {
  parameters,
  gradients,
  gradient_accumulators,
  optimizer,
  activations,
  communication_buckets,
  prefetch,   // gather buffers of released units
  staging,    // pinned buffers between tiers
  workspace,  // scratch memory of libraries, input tokens
  count_,
};
std::string_view name_of(MemoryTag tag);
inline constexpr std::size_t memory_tag_count = static_cast<std::size_t>(MemoryTag::count_);

struct TagBytes {
  std::array<Bytes, memory_tag_count> bytes{};
  Bytes& operator[](MemoryTag tag) { return bytes[static_cast<std::size_t>(tag)]; }
  Bytes operator[](MemoryTag tag) const { return bytes[static_cast<std::size_t>(tag)]; }
  Bytes total() const;
};

// Counts bytes of one tier against a hard limit. Thread-safe. charge() throws DoesNotFit with the ledger of
// this tier.
class MemoryBudget {
 public:
  MemoryBudget(std::string tier, Bytes limit);
  void charge(MemoryTag tag, Bytes bytes);
  void refund(MemoryTag tag, Bytes bytes) noexcept;
  Bytes limit() const { return limit_; }
  const std::string& tier() const { return tier_; }
  TagBytes current() const;
  TagBytes peak() const;  // high-water mark of each tag
  Bytes peak_total() const;
  std::string ledger() const;  // one line a tag: current, peak; then limit

 private:
  std::string tier_;
  Bytes limit_;
  mutable std::mutex mutex_;
  TagBytes current_, peak_;
  Bytes peak_total_ = 0;
};

// Page-aligned host memory charged to a budget for its whole life. Zero-filled; untouched pages cost nothing
// but budget. Large buffers ask for huge pages: what is resident may round up to 2 MiB, never beyond the
// buffer.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(MemoryBudget& budget, MemoryTag tag, Bytes bytes);
  HostBuffer(HostBuffer&&) noexcept;
  HostBuffer& operator=(HostBuffer&&) noexcept;
  ~HostBuffer();
  std::span<std::byte> memory() const { return memory_; }
  std::byte* data() const { return memory_.data(); }

 private:
  void reset() noexcept;
  MemoryBudget* budget_ = nullptr;
  MemoryTag tag_ = MemoryTag::staging;
  std::span<std::byte> memory_;
};

// A pool of `count` buffers of `buffer_bytes` (rounded up to 4 KiB, never to a power of two), 4 KiB-aligned,
// one allocation; Device::pin(pool.memory()) makes it fast to copy. acquire() blocks until one is free.
// Thread-safe.
class StagingPool final : public LeaseOwner {
 public:
  StagingPool(MemoryBudget& budget, MemoryTag tag, Bytes buffer_bytes, std::uint32_t count);
  ~StagingPool();
  HostLease acquire();
  HostLease try_acquire();  // an empty lease when none is free
  Bytes buffer_bytes() const { return buffer_bytes_; }
  std::uint32_t count() const { return count_; }
  std::uint32_t peak_in_use() const;
  std::span<std::byte> memory() const { return buffer_.memory(); }
  void give_back(std::span<std::byte> memory) noexcept override;

 private:
  HostLease take_free();  // under mutex_; one must be free

  Bytes buffer_bytes_;
  std::uint32_t count_;
  HostBuffer buffer_;
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::byte*> free_;
  std::uint32_t peak_in_use_ = 0;
};

// The three regions of a device arena [Note: three regions of device memory]. Host-side bookkeeping only: it
// hands out addresses, in program order of one thread; ordering of their use is the business of lanes and
// events.
class DeviceMemory {
 public:
  // Manages [base, base + budget.limit()). All results are 64-byte aligned.
  DeviceMemory(std::byte* base, MemoryBudget& budget);
  // Persistent state, never given back.
  std::byte* persistent(MemoryTag tag, Bytes bytes);
  // Stack from the top: push returns the block, pop_to(mark) frees all that was pushed since mark() was
  // taken.
  using Mark = Bytes;
  Mark mark() const { return stack_used_; }
  std::byte* push(MemoryTag tag, Bytes bytes);
  void pop_to(Mark mark);
  Bytes persistent_bytes() const { return persistent_used_; }
  Bytes stack_peak_bytes() const { return stack_peak_; }

 private:
  struct Pushed {
    MemoryTag tag;
    Bytes bytes;
    Bytes stack_before;
  };
  std::byte* base_;
  MemoryBudget& budget_;
  Bytes persistent_used_ = 0, stack_used_ = 0, stack_peak_ = 0;
  std::vector<Pushed> pushed_;
};

// Bytes this process may still take: the least of MemAvailable and the cgroup's memory.max less
// memory.current.
Bytes available_host_memory();

}  // namespace headrace
