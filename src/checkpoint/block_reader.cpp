#include "src/checkpoint/block_reader.h"

#include <algorithm>
#include <deque>
#include <new>

namespace headrace {
namespace {

constexpr std::size_t blocks_in_flight = 4;
constexpr Bytes memory_alignment = 4096;

}  // namespace

BlockReader::BlockReader(SwapStore& store) : store_(store) {
  Bytes largest = 0;
  for (std::uint32_t block = 0; block < store.blocks().size(); ++block)
    largest = std::max(largest, store.buffer_bytes(block));
  buffer_bytes_ = round_up(std::max(largest, memory_alignment), memory_alignment);
  memory_.reset(
      static_cast<std::byte*>(std::aligned_alloc(memory_alignment, buffer_bytes_ * blocks_in_flight)));
  if (memory_ == nullptr) throw std::bad_alloc();
}

void BlockReader::run(const std::function<void(std::uint32_t, std::span<std::byte>)>& visit,
                      const std::function<void(std::uint32_t, const Error&)>& damaged,
                      const std::function<bool()>& go_on) {
  const auto blocks = static_cast<std::uint32_t>(store_.blocks().size());
  std::deque<SwapTicket> ahead;
  std::uint32_t next = 0;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    if (!go_on()) break;
    for (; next < blocks && next < block + blocks_in_flight; ++next)
      ahead.push_back(store_.read(next, buffer(next)));
    SwapTicket ticket = std::move(ahead.front());
    ahead.pop_front();
    try {
      ticket.wait();
    } catch (const Error& error) {
      damaged(block, error);
      continue;
    }
    const HostLease lease = ticket.take();
    visit(block, {lease.data(), store_.blocks()[block].bytes});
  }
  for (SwapTicket& ticket : ahead) {  // of a stop: they still write to the memory
    try {
      ticket.wait();
    } catch (const Error&) {
    }
  }
}

HostLease BlockReader::buffer(std::uint32_t block) {
  return HostLease::borrowed({memory_.get() + (block % blocks_in_flight) * buffer_bytes_, buffer_bytes_});
}

}  // namespace headrace
