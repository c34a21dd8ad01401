#include "aio/bounce_buffers.h"

#include <sys/mman.h>

namespace headrace::aio {

std::span<std::byte> BounceBuffers::allocate(std::uint32_t count, Bytes bytes) {
  constexpr Bytes huge_page = Bytes{2} << 20;
  const Bytes all = round_up(count * bytes, huge_page);
  memory_ = allocate_aligned(all, huge_page);
  ::madvise(memory_.get(), all, MADV_HUGEPAGE);
  count_ = count;
  buffer_bytes_ = bytes;
  return {memory_.get(), all};
}

void BounceBuffers::publish() {
  free_.reserve(count_);
  for (std::uint32_t i = 0; i < count_; ++i) free_.push_back(memory_.get() + i * buffer_bytes_);
}

std::byte* BounceBuffers::take() {
  std::byte* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

}  // namespace headrace::aio
