#include "src/bench/block_order.h"

#include "headrace/errors.h"

namespace headrace {

BlockOrder::BlockOrder(const BlockWork& work, Bytes file_bytes, std::uint64_t start, std::uint64_t seed)
    : work_(work), in_flight_(file_bytes / work.block_bytes), random_state_(seed) {
  HEADRACE_CHECK(in_flight_.size() > work.depth, "{} blocks in flight and one ready in a file of {}",
                 work.depth, in_flight_.size());
  next_block_ = start / work.block_bytes % in_flight_.size();
}

BlockRequest BlockOrder::next() {
  std::uint64_t block = work_.access == NvmeAccess::random ? random_block() : next_block_;
  for (std::size_t looked_at = 0; in_flight_[block]; ++looked_at) {
    HEADRACE_CHECK(looked_at < in_flight_.size(), "every block of the file is in flight");
    block = (block + 1) % in_flight_.size();
  }
  in_flight_[block] = true;
  if (work_.access == NvmeAccess::sequential) next_block_ = (block + 1) % in_flight_.size();
  return {.direction = next_direction(), .offset = block * work_.block_bytes};
}

void BlockOrder::ended(const BlockRequest& request) {
  in_flight_[request.offset / work_.block_bytes] = false;
}

// Spreads the reads evenly, so that any stretch of the order has their share.
IoDirection BlockOrder::next_direction() {
  if (work_.operation == NvmeOperation::read) return IoDirection::read;
  if (work_.operation == NvmeOperation::write) return IoDirection::write;
  const auto reads_among = [&](std::uint64_t blocks) {
    return static_cast<std::uint64_t>(static_cast<double>(blocks) * work_.read_share);
  };
  const bool reads = reads_among(handed_out_ + 1) > reads_among(handed_out_);
  ++handed_out_;
  return reads ? IoDirection::read : IoDirection::write;
}

// splitmix64.
std::uint64_t BlockOrder::random_block() {
  std::uint64_t z = (random_state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % in_flight_.size();
}

}  // namespace headrace
