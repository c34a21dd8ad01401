// Which block moves next, in which direction: a value without a file, so that the order is tested alone. One
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/nvme_bench.h"

namespace headrace {

struct BlockWork {
  NvmeOperation operation = NvmeOperation::read;
  NvmeAccess access = NvmeAccess::sequential;
  Bytes block_bytes = 0;
  std::uint32_t depth = 1;
  double read_share = 0.5;  // of mixed work

  Bytes in_flight_bytes() const { return block_bytes * depth; }
  double share_of_reads() const {
    return operation == NvmeOperation::mixed ? read_share : operation == NvmeOperation::read ? 1 : 0;
  }
  bool reads() const { return operation != NvmeOperation::write; }
  bool writes() const { return operation != NvmeOperation::read; }
};

struct BlockRequest {
  IoDirection direction = IoDirection::read;
  std::uint64_t offset = 0;
};

// Blocks that lie whole in the file; its last bytes may not be reached. No block is handed out again before
// ended() told that it is not in flight any more, so the file must hold more blocks than are in flight.
class BlockOrder {
 public:
  // Sequential work starts at `start` (rounded down to a block) and wraps round.
  BlockOrder(const BlockWork& work, Bytes file_bytes, std::uint64_t start, std::uint64_t seed);
  BlockRequest next();
  void ended(const BlockRequest& request);
  std::uint64_t position() const { return next_block_ * work_.block_bytes; }  // where sequential work goes on

 private:
  IoDirection next_direction();
  std::uint64_t random_block();

  BlockWork work_;
  std::vector<bool> in_flight_;  // by block
  std::uint64_t next_block_, handed_out_ = 0, random_state_;
};

}  // namespace headrace
