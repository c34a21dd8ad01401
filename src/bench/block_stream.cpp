#include "src/bench/block_stream.h"

#include <algorithm>
#include <chrono>

#include "headrace/errors.h"
#include "headrace/io_batch.h"
#include "headrace/io_wait_any.h"
#include "src/bench/storage_facts.h"

namespace headrace {
namespace {

constexpr std::uint64_t blocks_per_full_check = 16;  // checked byte by byte: one of so many
constexpr std::size_t kept_writes = 2;               // read back after a run

std::int64_t now_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Adds the CPU time of its life to `seconds`.
class CpuTime {
 public:
  explicit CpuTime(double& seconds) : seconds_(seconds), start_(thread_cpu_seconds()) {}
  CpuTime(const CpuTime&) = delete;
  CpuTime& operator=(const CpuTime&) = delete;
  ~CpuTime() { seconds_ += thread_cpu_seconds() - start_; }

 private:
  double& seconds_;
  double start_;
};

}  // namespace

// One run over blocks of an order. The buffers of blocks that were made ready and not submitted go back.
class BlockStream::Run {
 public:
  Run(BlockStream& stream, const BlockWork& work, BlockOrder& order, std::uint64_t most_blocks)
      : stream_(stream), work_(work), order_(order), blocks_left_(most_blocks) {}

  StreamSample operator()(const GoOn& go_on) {
    while (ready_.size() < work_.depth + 1 && blocks_left_ > 0) make_next_ready();
    start_ = end_ = now_nanoseconds();
    submit_first();
    for (bool more = true; !in_flight_.empty();) more = replace(take_ended(), more, go_on);
    if (sample_.written_bytes > 0 && !stream_.scratch_.file().direct()) {
      stream_.scratch_.file().sync_data();
      end_ = now_nanoseconds();
    }
    sample_.seconds = static_cast<double>(std::max<std::int64_t>(end_ - start_, 1)) * 1e-9;
    give_back_ready();
    return sample_;
  }

 private:
  void make_next_ready() {
    const CpuTime cpu(sample_.pattern_cpu_seconds);
    const BlockRequest request = order_.next();
    Buffer buffer = stream_.take_buffer(request, work_.block_bytes);
    stream_.make_ready(buffer, request, work_.block_bytes);
    ready_.push_back({.request = request, .buffer = std::move(buffer), .ticket = {}});
    --blocks_left_;
  }

  void submit_first() {
    const IoBatch batch(stream_.io_);
    while (in_flight_.size() < work_.depth && !ready_.empty()) submit();
  }

  void submit() {
    in_flight_.splice(in_flight_.end(), ready_, ready_.begin());
    Block& block = in_flight_.back();
    block.submitted = now_nanoseconds();
    block.ticket = stream_.io_.submit(block.request.direction, stream_.scratch_.file(), block.request.offset,
                                      std::move(block.buffer.lease), work_.block_bytes);
  }

  // [Note: whichever ends first]
  Blocks take_ended() {
    waited_for_.clear();
    for (Block& block : in_flight_) waited_for_.push_back(&block.ticket);
    const std::vector<std::size_t> places = wait_for_any(waited_for_);
    end_ = now_nanoseconds();
    Blocks ended;
    auto next = in_flight_.begin();
    std::size_t place = 0;
    for (const std::size_t wanted : places) {
      for (; place < wanted; ++place) ++next;
      sample_.latencies.add(static_cast<std::uint64_t>(end_ - next->submitted));
      ended.splice(ended.end(), in_flight_, next++);
      ++place;
    }
    return ended;
  }

  // Another block for each that has ended, as long as more are wanted; returns whether they still are.
  bool replace(Blocks ended, bool more, const GoOn& go_on) {
    for (Block& block : ended) {
      account_for(block);
      more = more && go_on(sample_.bytes());
      if (more && !ready_.empty()) submit();
      check_and_free(std::move(block));
      if (more && blocks_left_ > 0) make_next_ready();
    }
    return more;
  }

  void account_for(Block& block) {
    const IoResult result = block.ticket.wait();
    const bool reads = block.request.direction == IoDirection::read;
    if (!result.ok())
      throw IoError(reads ? "read" : "write", stream_.scratch_.file().path(), block.request.offset,
                    work_.block_bytes, result.code);
    block.buffer.lease = block.ticket.take();
    (reads ? sample_.read_bytes : sample_.written_bytes) += work_.block_bytes;
    ++sample_.blocks;
  }

  void check_and_free(Block block) {
    const CpuTime cpu(sample_.pattern_cpu_seconds);
    if (block.request.direction == IoDirection::read) {
      const bool every_byte = stream_.check_every_byte_ || reads_++ % blocks_per_full_check == 0;
      stream_.check(block, work_.block_bytes, every_byte, {.oldest = 1, .newest = stream_.generation_});
      stream_.scratch_.forget(block.request.offset, work_.block_bytes);
    } else {
      auto& written = stream_.written_;
      if (written.size() == kept_writes) written.erase(written.begin());
      written.push_back(block.request);
    }
    order_.ended(block.request);
    stream_.free_.push_back(std::move(block.buffer));
  }

  void give_back_ready() {
    for (Block& block : ready_) {
      order_.ended(block.request);
      stream_.free_.push_back(std::move(block.buffer));
    }
    ready_.clear();
  }

  BlockStream& stream_;
  const BlockWork& work_;
  BlockOrder& order_;
  std::uint64_t blocks_left_, reads_ = 0;
  StreamSample sample_;
  std::vector<IoTicket*> waited_for_;
  std::int64_t start_ = 0, end_ = 0;  // nanoseconds of the steady clock
  Blocks ready_, in_flight_;
};

BlockStream::BlockStream(IoEngine& io, ScratchFile& scratch, const DrivePattern& pattern, StagingPool& pool,
                         std::uint32_t buffers, bool check_every_byte)
    : io_(io), scratch_(scratch), pattern_(pattern), check_every_byte_(check_every_byte) {
  for (std::uint32_t b = 0; b < buffers; ++b) {
    HostLease lease = pool.acquire();
    std::byte* memory = lease.data();
    free_.push_back({.lease = std::move(lease), .memory = memory, .noise_phase = std::nullopt});
  }
}

StreamSample BlockStream::prepare(const BlockWork& work, Bytes bytes, const GoOn& go_on) {
  ++generation_;
  BlockOrder order(work, bytes, 0, 0);
  StreamSample sample = Run(*this, work, order, bytes / work.block_bytes)(go_on);
  file_bytes_ = sample.written_bytes;
  written_.clear();
  return sample;
}

void BlockStream::set_file_bytes(Bytes bytes) {
  file_bytes_ = bytes;
}

StreamSample BlockStream::run(const BlockWork& work, const GoOn& go_on) {
  if (work.writes()) ++generation_;
  written_.clear();
  written_block_bytes_ = work.block_bytes;
  BlockOrder order(work, file_bytes_, position_, ++runs_);
  constexpr std::uint64_t no_end = ~std::uint64_t{0};
  StreamSample sample = Run(*this, work, order, no_end)(go_on);
  if (work.access == NvmeAccess::sequential) position_ = order.position();
  return sample;
}

void BlockStream::check_written() {
  if (!written_.empty() && !scratch_.file().direct()) scratch_.evict();
  for (const BlockRequest& request : written_) {
    Block block{.request = {.direction = IoDirection::read, .offset = request.offset},
                .buffer = take_buffer(request, written_block_bytes_),
                .ticket = {}};
    make_ready(block.buffer, block.request, written_block_bytes_);
    block.ticket = io_.submit(IoDirection::read, scratch_.file(), request.offset,
                              std::move(block.buffer.lease), written_block_bytes_);
    const IoResult result = block.ticket.wait();
    if (!result.ok())
      throw IoError("read", scratch_.file().path(), request.offset, written_block_bytes_, result.code);
    block.buffer.lease = block.ticket.take();
    check(block, written_block_bytes_, true, {.oldest = generation_, .newest = generation_});
    free_.push_back(std::move(block.buffer));
  }
  written_.clear();
}

// One whose noise is right already saves filling it; a read takes one whose noise is of no use.
BlockStream::Buffer BlockStream::take_buffer(const BlockRequest& request, Bytes block_bytes) {
  HEADRACE_CHECK(!free_.empty(), "no free buffer");
  const Bytes phase = request.offset % DrivePattern::tile_bytes;
  const auto suits = [&](const Buffer& buffer) {
    if (request.direction == IoDirection::read) return !buffer.noise_phase.has_value();
    return buffer.noise_phase == phase && buffer.noise_bytes >= block_bytes;
  };
  auto found = std::find_if(free_.begin(), free_.end(), suits);
  if (found == free_.end()) found = std::prev(free_.end());
  Buffer buffer = std::move(*found);
  free_.erase(found);
  return buffer;
}

void BlockStream::make_ready(Buffer& buffer, const BlockRequest& request, Bytes block_bytes) const {
  const std::span<std::byte> memory(buffer.memory, block_bytes);
  if (request.direction == IoDirection::read) {
    buffer.noise_phase.reset();
    DrivePattern::clear_stamps(memory);
    return;
  }
  const Bytes phase = request.offset % DrivePattern::tile_bytes;
  if (buffer.noise_phase != phase || buffer.noise_bytes < block_bytes) {
    pattern_.fill_noise(memory, request.offset);
    buffer.noise_phase = phase;
    buffer.noise_bytes = block_bytes;
  }
  pattern_.stamp(memory, request.offset, generation_);
}

void BlockStream::check(const Block& block, Bytes block_bytes, bool every_byte, Generations allowed) const {
  const std::span<const std::byte> memory(block.buffer.memory, block_bytes);
  const std::uint64_t offset = block.request.offset;
  const auto wrong = every_byte ? pattern_.wrong_byte(memory, offset, allowed)
                                : pattern_.wrong_stamp(memory, offset, allowed);
  if (wrong) refuse(offset + *wrong);
}

void BlockStream::refuse(std::uint64_t offset) const {
  throw Error(fmt::format(
      "{}: the byte at offset {} of the file is not what was written there. The drive, its file system or "
      "the "
      "memory is not sound: look at the kernel's log, and keep no data there before the cause is found.",
      scratch_.folder(), offset));
}

}  // namespace headrace
