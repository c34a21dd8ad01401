// One lane: a stream, the host functions on it, its pinned bounce buffer, and what is known of its work for
// errors. The owner thread calls everything.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>

#include "gpu/cuda_handles.h"
#include "gpu/kernel_queue.h"
#include "gpu/lane_clock.h"
#include "headrace/first_failure.h"

namespace headrace {

class CudaLane final : public KernelQueue {
 public:
  // `synchronous` waits after each piece of work, so that a failure names the one that failed.
  CudaLane(Lane lane, EventPool& events, FirstFailure& failure, bool synchronous);
  ~CudaLane() override;  // the stream must be idle, or the device have failed

  bool active() const override { return !failure_.failed(); }
  cudaStream_t stream() const override { return stream_.get(); }
  void launching(const char* name) override;
  void launched(const char* name) override;

  void copy(void* destination, const void* source, Bytes bytes);  // neither end pageable
  // Pageable memory goes through the bounce buffer in pieces, so that the caller is not held up. A small
  // upload is taken over at once, without a host function in the lane's way, while nothing that was
  // enqueued since every lane was last idle can write its source.
  void copy_from_pageable(void* device, const void* source, Bytes bytes);
  void copy_to_pageable(void* destination, const void* device, Bytes bytes);
  void fill_zero(void* destination, Bytes bytes);
  // CUDA may run the host functions of all lanes one after another: one that blocks holds up those of other
  // lanes (not their kernels and copies of pinned memory), so it must not wait for what another one does.
  void enqueue(const char* name, std::function<void()> work);

  // Null when the device has failed; status() says how.
  std::shared_ptr<EventPool::Recorded> record();
  cudaError_t status() const { return clock_.status(); }
  void wait(const EventPool::Recorded& event);
  // After a failure of the device: waits for host functions that run, since CUDA no longer does.
  void settle();
  // Every lane is idle: host memory has what earlier work wrote.
  void all_are_idle() { host_memory_changes_ = false; }
  // Notes what has ended (for unfinished() and times()).
  void harvest() { clock_.harvest(); }

  // What had not been seen to end, for the message of a failure: "attention, gelu and 3 more"; empty when
  // idle.
  std::string unfinished();
  LaneTimes times();

 private:
  // A host function's closure, alive until it has run.
  struct HostWork {
    CudaLane* lane;
    const char* name;
    std::function<void()> work;
    enum class State : std::uint8_t { queued, running, done, abandoned };
    std::atomic<State> state{State::queued};
    bool done() const { return state.load(std::memory_order_acquire) == State::done; }
    void wait_if_running() const;
    HostWork(CudaLane* lane_in, const char* name_in, std::function<void()> work_in)
        : lane(lane_in), name(name_in), work(std::move(work_in)) {}
  };
  static void run_host_work(void* work);
  void submit(const char* name, cudaError_t status);
  void fail(const char* name, const std::string& why);
  bool take_over(void* device, const void* source, Bytes bytes);

  Lane lane_;
  EventPool& events_;
  FirstFailure& failure_;
  bool synchronous_;
  CudaStream stream_;
  PinnedBytes bounce_;
  // Pinned slots of small uploads, used in turn.
  struct SmallSlot {
    std::shared_ptr<EventPool::Recorded> emptied;
  };
  std::array<SmallSlot, 8> small_;
  std::size_t next_small_ = 0;
  bool host_memory_changes_ = false;  // by a host function in this lane, or by what it waits for
  PinnedBytes small_memory_;
  LaneClock clock_;
  std::deque<std::unique_ptr<HostWork>> host_work_;
  struct Named {
    const char* name;
    std::uint64_t marker;  // done when the clock has passed it
  };
  std::deque<Named> recent_;
};

}  // namespace headrace
