#include <sys/mman.h>

#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {
namespace {

constexpr Bytes page_bytes = 4096;

std::span<std::byte> map_pages(Bytes bytes) {
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    detail::throw_errno(__FILE__, __LINE__, fmt::format("map {} of host memory", format_bytes(bytes)), errno);
  return {static_cast<std::byte*>(address), bytes};
}

}  // namespace

HostBuffer::HostBuffer(MemoryBudget& budget, MemoryTag tag, Bytes bytes) : tag_(tag) {
  const Bytes whole_pages = round_up(bytes, page_bytes);
  if (whole_pages == 0) return;
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
