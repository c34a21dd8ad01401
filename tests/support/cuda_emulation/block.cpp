#include "support/cuda_emulation/block.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "support/cuda_emulation/fiber.h"
#include "support/cuda_emulation/runtime.h"

namespace cuda_emulation {
namespace {

constexpr int most_threads = 1024;
constexpr std::size_t most_shared_bytes = 227 << 10;  // of a block on sm_90
constexpr std::size_t page_bytes = 4096;

enum class State : std::uint8_t { fresh, running, at_block_barrier, at_warp_barrier, left };

struct Thread {
  State state = State::fresh;
  Fiber* fiber = nullptr;  // while it waits
  uint3 index{};
  // Of a warp barrier: who takes part, and what a shuffle brings and takes.
  unsigned mask = 0;
  int source_lane = 0;
  std::uint64_t value = 0, received = 0;
};

// Dynamic shared memory that ends at a page nobody may touch.
class SharedMemory {
 public:
  SharedMemory()
      : mapping_(static_cast<char*>(::mmap(nullptr, reserved + page_bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    ::mprotect(mapping_ + reserved, page_bytes, PROT_NONE);
  }
  ~SharedMemory() { ::munmap(mapping_, reserved + page_bytes); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  // Filled with NaN: a block finds there what another one left.
  void* start(std::size_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    char* begin = mapping_ + reserved - bytes;
    std::memset(begin, 0xff, bytes);
    return begin;
  }

 private:
  static constexpr std::size_t reserved = (most_shared_bytes + page_bytes - 1) / page_bytes * page_bytes;
  char* mapping_;
};

}  // namespace

class BlockScheduler {
 public:
  explicit BlockScheduler(Block& block) : block_(block) {}
  void run(const char* kernel, std::size_t shared_bytes, std::uint64_t seed,
           const std::function<void()>& thread);

  // Called by the running thread: it goes on when the others have arrived.
  void wait(State state) {
    const int self = block_.thread_;
    threads_[self].state = state;
    threads_[self].fiber = current_fiber_;
    current_fiber_->suspend();
  }
  Thread& current() { return threads_[block_.thread_]; }

 private:
  static void fiber_main(void* scheduler) {
    auto& self = *static_cast<BlockScheduler*>(scheduler);
    self.current_fiber_->entered();
    self.run_threads();
  }
  [[noreturn]] void run_threads();
  void start_warp(int warp);
  bool run_warp(int warp);
  bool release_warp(int warp);
  bool complete(int warp, int lane) const;
  bool release_block();
  void resume(int thread);
  void take_order();
  bool coin() { return (random_() >> 16 & 1u) != 0; }
  [[noreturn]] void report_deadlock() const;
  int warps() const { return (count_ + warp_lanes - 1) / warp_lanes; }
  void enter(int thread) {
    block_.thread_ = thread;
    block_.thread_index_ = threads_[thread].index;
  }

  Block& block_;
  const char* kernel_ = "";
  const std::function<void()>* thread_ = nullptr;
  int count_ = 0, left_ = 0;
  int next_ = 0, end_ = 0, step_ = 1;  // threads that a fiber may start
  Thread threads_[most_threads];
  std::vector<int> warp_order_ = {};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  Fiber* current_fiber_ = nullptr;
  SharedMemory shared_;
  std::minstd_rand random_;
};

void BlockScheduler::run(const char* kernel, std::size_t shared_bytes, std::uint64_t seed,
                         const std::function<void()>& thread) {
  random_.seed(static_cast<unsigned>(seed % 2147483647));
  kernel_ = kernel;
  thread_ = &thread;
  const dim3 size = block_.dimensions;
  count_ = static_cast<int>(size.x * size.y * size.z);
  if (count_ < 1 || count_ > most_threads)
    violation(fmt::format("kernel {}: {} threads a block", kernel, count_));
  if (shared_bytes > most_shared_bytes)
    violation(fmt::format("kernel {}: {} bytes of shared memory a block", kernel, shared_bytes));
  block_.shared_ = shared_.start(shared_bytes);
  for (int t = 0; t < count_; ++t) {
    const auto linear = static_cast<unsigned>(t);
    threads_[t] = {};
    threads_[t].index = {linear % size.x, linear / size.x % size.y, linear / (size.x * size.y)};
  }
  left_ = 0;
  take_order();
  for (const int warp : warp_order_) {
    start_warp(warp);
    run_warp(warp);
  }
  while (left_ < count_) {
    bool progress = false;
    for (const int warp : warp_order_) progress |= run_warp(warp);
    progress |= release_block();
    if (!progress) report_deadlock();
  }
}

void BlockScheduler::take_order() {
  warp_order_.resize(static_cast<std::size_t>(warps()));
  std::iota(warp_order_.begin(), warp_order_.end(), 0);
  std::shuffle(warp_order_.begin(), warp_order_.end(), random_);
}

void BlockScheduler::start_warp(int warp) {
  const int first = warp * warp_lanes, end = std::min(first + warp_lanes, count_);
  const bool descending = coin();
  next_ = descending ? end - 1 : first;
  end_ = descending ? first - 1 : end;
  step_ = descending ? -1 : 1;
  while (next_ != end_) {
    if (free_fibers_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>(fiber_main, this));
      free_fibers_.push_back(fibers_.back().get());
    }
    current_fiber_ = free_fibers_.back();
    free_fibers_.pop_back();
    current_fiber_->resume();
  }
}

// The body of every fiber: threads of a warp in turn. A thread that waited keeps the fiber to its end;
// then the fiber is free again.
void BlockScheduler::run_threads() {
  for (;;) {
    Fiber* const self = current_fiber_;
    while (next_ != end_) {
      const int thread = std::exchange(next_, next_ + step_);
      threads_[thread].state = State::running;
      enter(thread);
      (*thread_)();
      Thread& done = threads_[block_.thread_];
      done.state = State::left;
      ++left_;
      if (done.fiber != nullptr) break;
    }
    free_fibers_.push_back(self);
    self->suspend();
  }
}

void BlockScheduler::resume(int thread) {
  threads_[thread].state = State::running;
  current_fiber_ = threads_[thread].fiber;
  enter(thread);
  current_fiber_->resume();
}

// Runs what is ready in the warp until all of its threads wait for the block, for each other, or have left.
bool BlockScheduler::run_warp(int warp) {
  bool progress = false;
  while (release_warp(warp)) progress = true;
  return progress;
}

// Whether every lane of the mask of thread (warp, lane) has arrived at a barrier with that mask.
bool BlockScheduler::complete(int warp, int lane) const {
  const unsigned mask = threads_[warp * warp_lanes + lane].mask;
  for (int other = 0; other < warp_lanes; ++other) {
    if ((mask >> other & 1u) == 0) continue;
    const int thread = warp * warp_lanes + other;
    if (thread >= count_) continue;  // lanes that a partial warp lacks
    const Thread& state = threads_[thread];
    if (state.state != State::at_warp_barrier || state.mask != mask) return false;
  }
  return true;
}

bool BlockScheduler::release_warp(int warp) {
  int ready[warp_lanes];
  int ready_count = 0;
  const int first = warp * warp_lanes, end = std::min(first + warp_lanes, count_);
  for (int t = first; t < end; ++t)
    if (threads_[t].state == State::at_warp_barrier && complete(warp, t - first)) ready[ready_count++] = t;
  for (int i = 0; i < ready_count; ++i) {  // before any of them goes on and brings its next value
    Thread& thread = threads_[ready[i]];
    const int source = first + thread.source_lane;
    // What a lane that a partial warp lacks delivers is no value to rely on.
    thread.received = source < count_ ? threads_[source].value : ~std::uint64_t{0};
  }
  if (coin()) std::reverse(ready, ready + ready_count);
  for (int i = 0; i < ready_count; ++i) resume(ready[i]);
  return ready_count > 0;
}

bool BlockScheduler::release_block() {
  int waiting = 0;
  for (int t = 0; t < count_; ++t) waiting += threads_[t].state == State::at_block_barrier ? 1 : 0;
  if (waiting == 0 || waiting + left_ < count_) return false;
  take_order();
  std::vector<bool> released(static_cast<std::size_t>(count_));
  for (int t = 0; t < count_; ++t)
    released[static_cast<std::size_t>(t)] = threads_[t].state == State::at_block_barrier;
  // One warp after the other runs as far as it can: a barrier that is missing then shows.
  for (const int warp : warp_order_) {
    const int first = warp * warp_lanes, end = std::min(first + warp_lanes, count_);
    const bool descending = coin();
    for (int i = first; i < end; ++i)
      if (const int t = descending ? first + end - 1 - i : i; released[static_cast<std::size_t>(t)])
        resume(t);
    run_warp(warp);
  }
  return true;
}

void BlockScheduler::report_deadlock() const {
  std::string text = fmt::format(
      "kernel {}, block ({}, {}, {}): its threads wait for each other and none can go on:", kernel_,
      block_.index.x, block_.index.y, block_.index.z);
  const auto describe = [](const Thread& thread) -> std::string {
    if (thread.state == State::at_block_barrier) return "at __syncthreads";
    if (thread.state == State::at_warp_barrier)
      return fmt::format("at a warp barrier or shuffle of mask {:#x}", thread.mask);
    return "left";
  };
  for (int t = 0, first = 0; t < count_; ++t) {
    if (t + 1 < count_ && describe(threads_[t + 1]) == describe(threads_[t])) continue;
    text += fmt::format("\n  threads {} to {} {}", first, t, describe(threads_[t]));
    first = t + 1;
  }
  violation(text);
}

Block::Block() : scheduler_(std::make_unique<BlockScheduler>(*this)) {}
Block::~Block() = default;

void Block::run(const char* kernel, dim3 grid_in, dim3 dimensions_in, uint3 at, std::size_t shared_bytes,
                std::uint64_t seed, const std::function<void()>& thread) {
  grid = grid_in;
  dimensions = dimensions_in;
  index = at;
  running_block = this;
  scheduler_->run(kernel, shared_bytes, seed, thread);
}

void Block::wait_for_block() {
  scheduler_->wait(State::at_block_barrier);
}

void Block::wait_for_warp(unsigned mask) {
  exchange(mask, 0, lane());
}

std::uint64_t Block::exchange(unsigned mask, std::uint64_t bits, int source_lane) {
  if ((mask >> lane() & 1u) == 0 || (mask >> source_lane & 1u) == 0)
    violation(fmt::format("a shuffle by lane {} from lane {} with mask {:#x}: the mask must name both",
                          lane(), source_lane, mask));
  Thread& self = scheduler_->current();
  self.mask = mask;
  self.source_lane = source_lane;
  self.value = bits;
  scheduler_->wait(State::at_warp_barrier);
  return self.received;
}

}  // namespace cuda_emulation
