// Constant-size pinned buffers through which blocks pass between NVMe and a consumer: a lane, or the owner
// thread while that lane is idle. Buffers are used in turn, so the owner knows a block's address when it
// enqueues copies, long before the block is there; and a consumer that is done with a buffer starts what
// waits for it, so reads go on while the owner is elsewhere. Writes are behind: nobody waits for one but who
// overwrites its buffer next, so as many are in flight as there are buffers; a read that goes to a buffer, or
// is of a block, still being written is started by a thread of the ring's own when that write ends.
//
// Threads: the owner asks for passages, and may drop those that it has given to no consumer. The consumer,
// one at a time, takes every other one in the order asked: await, then write or release. A failed read is
// thrown (IoError, CorruptData) at the await of its block, unless it was dropped; the first failed write by
// every later await and flush().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/zero/read_ahead.h"
#include "src/zero/scratch_store.h"

namespace headrace {

class BlockRing {
 public:
  using Index = ScratchStore::Index;
  enum class Use : std::uint8_t { read, read_and_write, overwrite };

  // One block's time in a buffer.
  class Passage;
  using Handle = std::shared_ptr<Passage>;

  BlockRing(EngineContext& context, ScratchStore& store, Bytes buffer_bytes, std::uint32_t count);
  ~BlockRing();

  std::uint32_t count() const { return static_cast<std::uint32_t>(buffers_.size()); }
  Handle ask(Index block, Use use);
  static std::byte* memory(const Handle& passage);
  // Waits for its read if one is in flight, whatever comes of it: the block may then be written again.
  void drop(const Handle& passage);

  // Consumer: blocks until the buffer is free and, unless it is overwritten, holds the block.
  void await(const Handle& passage);
  void write(const Handle& passage);    // starts writing; the buffer is free when that is done
  void release(const Handle& passage);  // the buffer is free

  // The same in a lane's order; none of them blocks the caller. In a lane they wait for the disk alone, never
  // for another lane's work: a device may run the host functions of all lanes one after another (CUDA has one
  // thread for them), so one of another lane may be late by such a wait, but cannot be what it waits for.
  void enqueue_await(Lane lane, const Handle& passage);
  void enqueue_write(Lane lane, const Handle& passage);
  void enqueue_release(Lane lane, const Handle& passage);

  // Owner, consumer idle: every write is on the disk's side, or its failure is thrown.
  void flush();
  // After an error, or before the memory is unpinned: waits for everything in flight. Lanes idle.
  void abandon() noexcept;
  // Seconds that a lane stood in await and write. What drop and flush wait is counted as the owner's.
  double waited_seconds(Lane lane) const;

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    Handle last;
  };
  using Lock = std::unique_lock<std::mutex>;
  void enqueue_timed(Lane lane, const char* name, std::function<void()> work);
  void start_what_can_be(Lock& lock);
  void start_read(const Handle& passage, Lock& lock);
  void start_after_writes();
  void finish_write(Passage& passage);
  void finish_earlier_writes(const Handle& passage, Lock& lock);
  void unlink(const Handle& passage);
  void stop() noexcept;

  Device& device_;
  WaitClock& owner_waits_;
  ScratchStore& store_;
  Bytes buffer_bytes_;
  HostBuffer memory_;
  Pin pin_;
  std::mutex mutex_;
  std::condition_variable started_, behind_writes_or_stopping_;
  std::vector<Buffer> buffers_;
  std::uint64_t asked_ = 0;
  std::deque<Handle> queued_;         // not started, in the order asked
  std::deque<Handle> behind_writes_;  // reads that the ring's thread starts
  bool stopping_ = false;
  std::exception_ptr write_failure_;             // the first one
  std::thread starter_;                          // from the first such read on
  std::vector<std::weak_ptr<Passage>> writers_;  // per block: the last passage that writes it
  std::array<std::atomic<std::int64_t>, lane_count> waited_nanoseconds_{};
};

// Takes blocks from NVMe through a ring, the expected ones read ahead. Owner thread.
class BlockReader {
 public:
  BlockReader(BlockRing& ring, BlockRing::Use use, std::uint32_t depth)
      : ring_(ring), use_(use), policy_(depth) {}
  // What will be taken next, in this order (read_ahead.h).
  void expect(std::span<const BlockRing::Index> sequence);
  BlockRing::Handle take(BlockRing::Index block);
  // Nothing is on its way any more.
  void drop_all();
  std::uint32_t depth() const { return policy_.depth(); }

 private:
  void drop_after(std::size_t keep);

  BlockRing& ring_;
  BlockRing::Use use_;
  ReadAhead policy_;
  std::deque<BlockRing::Handle> passages_;  // of policy_.on_its_way()
};

}  // namespace headrace
