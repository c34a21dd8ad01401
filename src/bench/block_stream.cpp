#include "src/bench/block_stream.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>
#include <thread>

#include "headrace/errors.h"
#include "headrace/io_batch.h"
#include "src/bench/storage_facts.h"

namespace headrace {
namespace {

constexpr std::uint64_t blocks_per_full_check = 16;  // checked byte by byte: one of so many
constexpr std::size_t kept_writes = 2;               // read back after a run
constexpr Bytes small_block = Bytes{128} << 10;      // up to it, several are worth one system call
constexpr std::size_t several = 4;

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

// While it lives, sleeps of this thread end on time: the kernel adds 50 microseconds to them otherwise.
class PreciseSleep {
 public:
  PreciseSleep() : before_(::prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)) { set(1); }
  PreciseSleep(const PreciseSleep&) = delete;
  PreciseSleep& operator=(const PreciseSleep&) = delete;
  ~PreciseSleep() { set(before_); }

 private:
  void set(long nanoseconds) const {
    if (before_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(nanoseconds), 0, 0, 0);
  }
  const long before_;
};

// For less than a second; whether it was interrupted. Kernels since 5.15 interrupt a thread when a transfer
// ends that it has submitted to a ring, and unlike others this sleep does not go on then.
bool sleep_until_interrupted(std::int64_t nanoseconds) {
  sigset_t none;
  sigemptyset(&none);
  const timespec time{.tv_sec = 0, .tv_nsec = static_cast<long>(nanoseconds)};
  return ::sigtimedwait(&none, nullptr, &time) < 0 && errno == EINTR;
}

// What blocks usually take, as far as is known: the median, found anew when the number of them has doubled.
class UsualLatency {
 public:
  std::int64_t nanoseconds() const { return nanoseconds_; }  // 0: not known
  void learn(const LatencyHistogram& seen) {
    if (seen.count() < next_) return;
    nanoseconds_ = static_cast<std::int64_t>(seen.quantile(0.5) * 1e9);
    next_ = 2 * seen.count();
  }

 private:
  std::int64_t nanoseconds_ = 0;
  std::uint64_t next_ = 1;
};

}  // namespace

// One run over blocks of an order. The buffers of blocks that were made ready and not submitted go back.
class BlockStream::Run {
 public:
  Run(BlockStream& stream, const BlockWork& work, BlockOrder& order, std::uint64_t most_blocks)
      : stream_(stream), work_(work), order_(order), blocks_left_(most_blocks) {}

  StreamSample operator()(const GoOn& go_on) {
    while (ready_.size() < work_.depth + 1 && blocks_left_ > 0) make_next_ready();
    const PreciseSleep precise;
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
    const auto batch = batch_of(ready_.size());
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
    if (in_flight_.size() == 1) (void)in_flight_.front().ticket.wait();
    Blocks ended = look();
    for (woken_ = Woken::by_itself; ended.empty(); ended = look()) pause();
    if (woken_ == Woken::interrupted) ++told_;
    if (woken_ == Woken::late) ++untold_;
    end_ = now_nanoseconds();
    for (const Block& block : ended)
      sample_.latencies.add(static_cast<std::uint64_t>(end_ - block.submitted));
    usual_.learn(sample_.latencies);
    return ended;
  }

  Blocks look() {
    Blocks ended;
    for (auto next = in_flight_.begin(); next != in_flight_.end();) {
      const auto block = next++;
      if (block->ticket.done()) ended.splice(ended.end(), in_flight_, block);
    }
    return ended;
  }

  void pause() {
    constexpr std::int64_t looks = 16, shortest = 5'000, longest = 10'000'000;
    constexpr std::size_t few = 8;        // to look at them costs little, so as often as one ends
    constexpr std::uint64_t trusted = 4;  // an end may come just as the time is over
    const std::int64_t usual = usual_.nanoseconds() > 0 ? usual_.nanoseconds() : now_nanoseconds() - start_;
    const bool tells = stream_.completions_ == Completions::interrupt && untold_ <= told_ + trusted;
    if (stream_.completions_ == Completions::polled) return;
    if (tells && in_flight_.size() <= few)
      woken_ = sleep_until_interrupted(std::clamp(usual / 2, shortest, longest)) ? Woken::interrupted
                                                                                 : Woken::late;
    else
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::clamp(usual / looks, shortest, longest)));
  }

  // Another block for each that has ended, as long as more are wanted; returns whether they still are.
  bool replace(Blocks ended, bool more, const GoOn& go_on) {
    const auto batch = batch_of(ended.size());
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

  std::optional<IoBatch> batch_of(std::size_t blocks) const {
    return blocks >= several && work_.block_bytes <= small_block
               ? std::optional<IoBatch>(std::in_place, stream_.io_)
               : std::optional<IoBatch>();
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
  UsualLatency usual_;
  enum class Woken : std::uint8_t { by_itself, interrupted, late };
  Woken woken_ = Woken::by_itself;       // from the last sleep that an end may interrupt
  std::uint64_t told_ = 0, untold_ = 0;  // ends that did interrupt one, and that did not
  std::int64_t start_ = 0, end_ = 0;     // nanoseconds of the steady clock
  Blocks ready_, in_flight_;
};

BlockStream::BlockStream(IoEngine& io, ScratchFile& scratch, const DrivePattern& pattern, StagingPool& pool,
                         std::uint32_t buffers, bool check_every_byte, Completions completions)
    : io_(io),
      scratch_(scratch),
      pattern_(pattern),
      check_every_byte_(check_every_byte),
      completions_(completions) {
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
