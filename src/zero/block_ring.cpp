#include "src/zero/block_ring.h"

#include <chrono>

#include "headrace/errors.h"

namespace headrace {

// queued: an earlier passage has yet to release the buffer or to write the block. starting: its read waits
// for those writes to end, or is being submitted. started: the buffer is this one's as soon as it is awaited.
// released: the consumer is done, or it was dropped; `writing` may go on.
enum class PassagePhase : std::uint8_t { queued, starting, started, released };

class BlockRing::Passage {
 public:
  Index block = 0;
  std::span<std::byte> memory;
  Use use = Use::read;
  PassagePhase phase = PassagePhase::queued;
  SwapTicket reading;
  std::exception_ptr failure;  // of starting its read
  // Until their writes have been waited for:
  Handle previous;  // in the same buffer
  Handle writer;    // the block's last one

  bool released() const { return phase == PassagePhase::released; }
  bool can_start() const {
    return (previous == nullptr || previous->released()) && (writer == nullptr || writer->released());
  }
  bool touches_nothing_yet() const {
    return phase == PassagePhase::queued || (phase == PassagePhase::started && use == Use::overwrite);
  }

  bool writes = false;       // its write has begun and nobody has seen it end
  std::mutex writing_mutex;  // held by who waits for that; taken before the ring's
  SwapTicket writing;
};

BlockRing::BlockRing(EngineContext& context, ScratchStore& store, Bytes buffer_bytes, std::uint32_t count)
    : device_(context.device),
      owner_waits_(context.nvme_waits),
      store_(store),
      buffer_bytes_(buffer_bytes),
      buffers_(count) {
  memory_ = HostBuffer(context.host_budget, MemoryTag::staging, buffer_bytes * count);
  pin_ = context.pin_for_io(memory_.memory());
  for (std::uint32_t b = 0; b < count; ++b) buffers_[b].memory = memory_.data() + b * buffer_bytes;
}

BlockRing::~BlockRing() {
  stop();  // dropped tickets wait for their transfers
}

void BlockRing::stop() noexcept {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  behind_writes_or_stopping_.notify_all();
  if (starter_.joinable()) starter_.join();
}

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
  passage->writer = writers_[block].lock();
  if (use != Use::read) writers_[block] = passage;
  queued_.push_back(passage);
  start_what_can_be(lock);
  return passage;
}

// Never waits for a transfer.
void BlockRing::start_what_can_be(Lock& lock) {
  while (!queued_.empty() && queued_.front()->can_start()) {
    const Handle passage = std::move(queued_.front());
    queued_.pop_front();
    if (passage->use == Use::overwrite) {
      passage->phase = PassagePhase::started;
      continue;
    }
    passage->phase = PassagePhase::starting;
    const auto writes = [](const Handle& earlier) { return earlier != nullptr && earlier->writes; };
    if (!writes(passage->previous) && !writes(passage->writer)) {
      start_read(passage, lock);
      continue;
    }
    behind_writes_.push_back(passage);
    if (!starter_.joinable()) starter_ = std::thread([this] { start_after_writes(); });
    behind_writes_or_stopping_.notify_one();
  }
}

// The lock is open while the read is submitted.
void BlockRing::start_read(const Handle& passage, Lock& lock) {
  passage->previous.reset(), passage->writer.reset();
  lock.unlock();
  SwapTicket reading;
  std::exception_ptr failure;
  try {
    reading = store_.read(passage->block, passage->memory);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  passage->reading = std::move(reading);
  passage->failure = failure;
  passage->phase = PassagePhase::started;
  started_.notify_all();
}

// The ring's thread.
void BlockRing::start_after_writes() {
  Lock lock(mutex_);
  for (;;) {
    behind_writes_or_stopping_.wait(lock, [&] { return stopping_ || !behind_writes_.empty(); });
    if (stopping_) return;
    const Handle passage = std::move(behind_writes_.front());
    behind_writes_.pop_front();
    finish_earlier_writes(passage, lock);
    start_read(passage, lock);
  }
}

// Waits for the passage's write, if there is one; a failure is in write_failure_.
void BlockRing::finish_write(Passage& passage) {
  const std::lock_guard waiting(passage.writing_mutex);
  if (!passage.writing) return;
  std::exception_ptr failure;
  try {
    passage.writing.wait();
  } catch (...) {
    failure = std::current_exception();
  }
  passage.writing = {};
  const Lock lock(mutex_);
  passage.writes = false;
  if (!write_failure_) write_failure_ = failure;
}

// The lock is open meanwhile.
void BlockRing::finish_earlier_writes(const Handle& passage, Lock& lock) {
  const Handle previous = std::move(passage->previous), writer = std::move(passage->writer);
  if (previous == nullptr && writer == nullptr) return;
  lock.unlock();
  if (previous != nullptr) finish_write(*previous);
  if (writer != nullptr) finish_write(*writer);
  lock.lock();
}

// What would wait for this one, which did nothing, waits for what it waited for. Only queued ones can: it has
// not been released.
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
  if (std::erase(behind_writes_, passage) > 0) passage->phase = PassagePhase::queued;
  owner_waits_.time([&] { started_.wait(lock, [&] { return passage->phase != PassagePhase::starting; }); });
  if (passage->touches_nothing_yet()) unlink(passage);
  SwapTicket reading = std::move(passage->reading);
  lock.unlock();
  owner_waits_.time([&] { reading = {}; });  // what became of it is nobody's business
  lock.lock();
  passage->phase = PassagePhase::released;
  start_what_can_be(lock);
}

void BlockRing::await(const Handle& passage) {
  Lock lock(mutex_);
  if (write_failure_) std::rethrow_exception(write_failure_);
  HEADRACE_CHECK(passage->phase != PassagePhase::queued, "a block is awaited out of turn");
  started_.wait(lock, [&] { return passage->phase != PassagePhase::starting; });
  finish_earlier_writes(passage, lock);
  SwapTicket reading = std::move(passage->reading);
  const std::exception_ptr failure = write_failure_ ? write_failure_ : passage->failure;
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
  if (reading) reading.wait();
}

void BlockRing::write(const Handle& passage) {
  SwapTicket writing = store_.write(passage->block, passage->memory);
  Lock lock(mutex_);
  passage->writing = std::move(writing);
  passage->writes = true;
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
  Lock lock(mutex_);
  for (const Buffer& buffer : buffers_) {
    const Handle last = buffer.last;
    if (last == nullptr) continue;
    owner_waits_.time([&] {
      finish_earlier_writes(last, lock);
      lock.unlock();
      finish_write(*last);
      lock.lock();
    });
  }
  if (write_failure_) std::rethrow_exception(write_failure_);
}

void BlockRing::abandon() noexcept {
  stop();
  for (Buffer& buffer : buffers_)
    for (Handle passage = std::move(buffer.last); passage != nullptr; passage = passage->previous) {
      passage->reading = {};  // a dropped ticket waits for its transfer
      passage->writing = {};
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
