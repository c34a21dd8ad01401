#include <sys/mman.h>

#include <limits>

#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {
namespace {

constexpr Bytes page_bytes = 4096;
constexpr Bytes huge_page_bytes = Bytes{2} << 20;
// Below this, faults are few, and one huge page would be a large part of the buffer.
constexpr Bytes huge_advice_bytes = 4 * huge_page_bytes;

std::span<std::byte> map_pages(Bytes bytes) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    detail::throw_errno(__FILE__, __LINE__, fmt::format("map {} of host memory", format_bytes(bytes)), errno);
  // Advice only: a kernel without huge pages refuses, and nothing changes.
  if (bytes >= huge_advice_bytes) ::madvise(address, bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(address), bytes};
}

}  // namespace

HostBuffer::HostBuffer(MemoryBudget& budget, MemoryTag tag, Bytes bytes) : tag_(tag) {
  if (bytes == 0) return;
  const bool wraps = bytes > std::numeric_limits<Bytes>::max() - page_bytes;
  const Bytes whole_pages = wraps ? bytes : round_up(bytes, page_bytes);
  budget.charge(tag, whole_pages);
  try {
    memory_ = map_pages(whole_pages);
  } catch (...) {
    budget.refund(tag, whole_pages);
    throw;
  }
  budget_ = &budget;
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      tag_(other.tag_),
      memory_(std::exchange(other.memory_, {})) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  if (this != &other) {
    reset();
    budget_ = std::exchange(other.budget_, nullptr);
    tag_ = other.tag_;
    memory_ = std::exchange(other.memory_, {});
  }
  return *this;
}

HostBuffer::~HostBuffer() {
  reset();
}

void HostBuffer::reset() noexcept {
  if (budget_ == nullptr) return;
  ::munmap(memory_.data(), memory_.size());
  budget_->refund(tag_, memory_.size());
  budget_ = nullptr;
  memory_ = {};
}

}  // namespace headrace
