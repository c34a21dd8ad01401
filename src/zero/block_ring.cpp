#include "src/zero/block_ring.h"

#include <chrono>

#include "headrace/errors.h"

namespace headrace {

// queued: an earlier passage still has the buffer, or has yet to write the block. starting: some thread waits
// for that write. started: the buffer is this one's. released: the consumer is done; `writing` may go on.
enum class PassagePhase : std::uint8_t { queued, starting, started, released };

class BlockRing::Passage {
 public:
  Index block = 0;
  std::span<std::byte> memory;
  Use use = Use::read;
  PassagePhase phase = PassagePhase::queued;
  SwapTicket reading;
  std::exception_ptr failure;  // of starting it
  Handle previous;             // in the same buffer
  Handle writer;               // the block's last one

  bool released() const { return phase == PassagePhase::released; }
  // Waits for its write; throws what became of it to all who ask.
  void finish_write() {
    const std::lock_guard lock(writing_mutex_);
    if (!writing_) return;
    writing_.wait();
    writing_ = {};
  }
  void set_writing(SwapTicket ticket) {
    const std::lock_guard lock(writing_mutex_);
    writing_ = std::move(ticket);
  }
  bool can_start() const {
    return (previous == nullptr || previous->released()) && (writer == nullptr || writer->released());
  }

 private:
  std::mutex writing_mutex_;
  SwapTicket writing_;
};

BlockRing::BlockRing(EngineContext& context, ScratchStore& store, Bytes buffer_bytes, std::uint32_t count)
    : device_(context.device), store_(store), buffer_bytes_(buffer_bytes), buffers_(count) {
  memory_ = HostBuffer(context.host_budget, MemoryTag::staging, buffer_bytes * count);
  context.pin_for_io(memory_.memory());
  for (std::uint32_t b = 0; b < count; ++b) buffers_[b].memory = memory_.data() + b * buffer_bytes;
}

BlockRing::~BlockRing() = default;  // dropped tickets wait for their transfers

std::byte* BlockRing::memory(const Handle& passage) {
  return passage->memory.data();
}

BlockRing::Handle BlockRing::ask(Index block, Use use) {
  auto passage = std::make_shared<Passage>();
  Lock lock(mutex_);
  Buffer& buffer = buffers_[asked_++ % buffers_.size()];
  passage->block = block;
  passage->memory = {buffer.memory, buffer_bytes_};
  passage->use = use;
  passage->previous = std::exchange(buffer.last, passage);
  if (writers_.size() <= block) writers_.resize(block + 1);
  if (use != Use::overwrite) passage->writer = writers_[block].lock();
  if (use != Use::read) writers_[block] = passage;
  queued_.push_back(passage);
  start_what_can_be(lock);
  return passage;
}

void BlockRing::start_what_can_be(Lock& lock) {
  while (!queued_.empty() && queued_.front()->can_start()) {
    const Handle passage = std::move(queued_.front());
    queued_.pop_front();
    start(passage, lock);
  }
}

// The lock is open while earlier writes of the buffer and of the block are waited for.
void BlockRing::start(const Handle& passage, Lock& lock) {
  passage->phase = PassagePhase::starting;
  const Handle previous = std::move(passage->previous), writer = std::move(passage->writer);
  lock.unlock();
  SwapTicket reading;
  try {
    if (previous != nullptr) previous->finish_write();
    if (writer != nullptr) writer->finish_write();
    if (passage->use != Use::overwrite) reading = store_.read(passage->block, passage->memory);
  } catch (...) {
    passage->failure = std::current_exception();
  }
  lock.lock();
  passage->reading = std::move(reading);
  passage->phase = PassagePhase::started;
  started_.notify_all();
}

// What would wait for this one, which never began, waits for what it waited for.
void BlockRing::unlink(const Handle& passage) {
  std::erase(queued_, passage);
  for (Buffer& buffer : buffers_)
    if (buffer.last == passage) buffer.last = passage->previous;
  for (const Handle& other : queued_) {
    if (other->previous == passage) other->previous = passage->previous;
    if (other->writer == passage) other->writer = passage->writer;
  }
  if (writers_[passage->block].lock() == passage) writers_[passage->block] = passage->writer;
}

void BlockRing::drop(const Handle& passage) {
  Lock lock(mutex_);
  started_.wait(lock, [&] { return passage->phase != PassagePhase::starting; });
  if (passage->phase == PassagePhase::queued) unlink(passage);
  SwapTicket reading = std::move(passage->reading);
  lock.unlock();
  if (reading) (void)reading.take();
  lock.lock();
  passage->phase = PassagePhase::released;
  start_what_can_be(lock);
}

void BlockRing::await(const Handle& passage) {
  Lock lock(mutex_);
  start_what_can_be(lock);
  HEADRACE_CHECK(passage->phase != PassagePhase::queued, "a block is awaited out of turn");
  started_.wait(lock, [&] { return passage->phase != PassagePhase::starting; });
  SwapTicket reading = std::move(passage->reading);
  lock.unlock();
  if (passage->failure) std::rethrow_exception(passage->failure);
  if (reading) reading.wait();
}

void BlockRing::write(const Handle& passage) {
  Lock lock(mutex_);
  passage->set_writing(store_.write(passage->block, passage->memory));
  passage->phase = PassagePhase::released;
  start_what_can_be(lock);
}

void BlockRing::release(const Handle& passage) {
  Lock lock(mutex_);
  passage->phase = PassagePhase::released;
  start_what_can_be(lock);
}

void BlockRing::enqueue_timed(Lane lane, const char* name, std::function<void()> work) {
  device_.enqueue(lane, name, [this, lane, work = std::move(work)] {
    const auto start = std::chrono::steady_clock::now();
    work();
    waited_nanoseconds_[static_cast<std::size_t>(lane)] +=
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  });
}

void BlockRing::enqueue_await(Lane lane, const Handle& passage) {
  enqueue_timed(lane, "wait for NVMe", [this, passage] { await(passage); });
}

void BlockRing::enqueue_write(Lane lane, const Handle& passage) {
  enqueue_timed(lane, "write to NVMe", [this, passage] { write(passage); });
}

void BlockRing::enqueue_release(Lane lane, const Handle& passage) {
  device_.enqueue(lane, "release a buffer", [this, passage] { release(passage); });
}

void BlockRing::flush() {
  const Lock lock(mutex_);
  for (const Buffer& buffer : buffers_)
    if (buffer.last != nullptr) buffer.last->finish_write();
}

void BlockRing::abandon() noexcept {
  for (Buffer& buffer : buffers_)
    for (Handle passage = std::move(buffer.last); passage != nullptr; passage = passage->previous) {
      passage->reading = {};  // a dropped ticket waits for its transfer
      passage->set_writing({});
    }
}

double BlockRing::waited_seconds(Lane lane) const {
  return static_cast<double>(waited_nanoseconds_[static_cast<std::size_t>(lane)].load()) * 1e-9;
}

void BlockReader::drop_after(std::size_t keep) {
  while (passages_.size() > keep) {
    ring_.drop(passages_.back());
    passages_.pop_back();
  }
}

void BlockReader::expect(std::span<const BlockRing::Index> sequence) {
  const ReadAhead::Change change = policy_.expect(sequence);
  drop_after(change.keep);
  for (const BlockRing::Index block : change.start) passages_.push_back(ring_.ask(block, use_));
}

BlockRing::Handle BlockReader::take(BlockRing::Index block) {
  const auto taken = policy_.take(block);
  if (!taken) {
    drop_after(0);
    return ring_.ask(block, use_);
  }
  for (std::size_t i = 0; i < taken->passed_over; ++i) {
    ring_.drop(passages_.front());
    passages_.pop_front();
  }
  BlockRing::Handle passage = std::move(passages_.front());
  passages_.pop_front();
  return passage;
}

void BlockReader::drop_all() {
  policy_.clear();
  drop_after(0);
}

}  // namespace headrace
