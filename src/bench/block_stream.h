// Moves blocks of one file through the engine, a number of them in flight, and checks them. One thread at a
// time drives a stream; streams of several files share an engine.
//
// [Note: one buffer more than in flight] While blocks are in flight, the one that follows is made ready and
// the one that came is checked, so that neither stands between a completion and the next submission.
//
// [Note: whichever ends first] A slow block must not hold up the others, neither their successors nor the
// time that counts as theirs: whichever ends is replaced at once.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "headrace/memory.h"
#include "src/bench/block_order.h"
#include "src/bench/drive_pattern.h"
#include "src/bench/latency_histogram.h"
#include "src/bench/scratch_file.h"

namespace headrace {

struct StreamSample {
  Bytes read_bytes = 0, written_bytes = 0;
  std::uint64_t blocks = 0;
  double seconds = 0;  // from the first submission to the last completion, a buffered file's flush included
  double pattern_cpu_seconds = 0;  // of this thread, to make and to check data
  LatencyHistogram latencies;
  Bytes bytes() const { return read_bytes + written_bytes; }
};

class BlockStream {
 public:
  // Asked after each block, with the bytes that have moved: whether to submit another one.
  using GoOn = std::function<bool(Bytes moved)>;

  // Takes `buffers` buffers of the pool for its life: one more than the largest depth.
  BlockStream(IoEngine& io, ScratchFile& scratch, const DrivePattern& pattern, StagingPool& pool,
              std::uint32_t buffers, bool check_every_byte);

  // Writes blocks from the start of the file, in order, until `bytes` are reached: afterwards it can be read.
  StreamSample prepare(const BlockWork& work, Bytes bytes, const GoOn& go_on);
  // The file holds so much that was written.
  Bytes file_bytes() const { return file_bytes_; }
  void set_file_bytes(Bytes bytes);
  StreamSample run(const BlockWork& work, const GoOn& go_on);
  // Reads some of what the last run wrote; it must be what that run wrote. Not timed.
  void check_written();

 private:
  struct Buffer {
    HostLease lease;
    std::byte* memory = nullptr;
    std::optional<Bytes> noise_phase;  // offset modulo the tile that its noise is right for
    Bytes noise_bytes = 0;
  };
  struct Block {
    BlockRequest request;
    Buffer buffer;
    IoTicket ticket;
    std::int64_t submitted = 0;  // nanoseconds of the steady clock
  };
  using Blocks = std::list<Block>;
  class Run;

  Buffer take_buffer(const BlockRequest& request, Bytes block_bytes);
  void make_ready(Buffer& buffer, const BlockRequest& request, Bytes block_bytes) const;
  void check(const Block& block, Bytes block_bytes, bool every_byte, Generations allowed) const;
  [[noreturn]] void refuse(std::uint64_t offset) const;

  IoEngine& io_;
  ScratchFile& scratch_;
  const DrivePattern& pattern_;
  const bool check_every_byte_;
  std::vector<Buffer> free_;
  Bytes file_bytes_ = 0;
  std::uint32_t generation_ = 0;  // of the run in progress
  std::uint64_t position_ = 0, runs_ = 0;
  std::vector<BlockRequest> written_;  // the last run's last ones
  Bytes written_block_bytes_ = 0;
};

}  // namespace headrace
