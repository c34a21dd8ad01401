// One ring for the files of one device, driven by whoever waits.
//
// [Note: who drives] No thread stands between a caller and the kernel: submit puts requests on the ring, and
// a thread that waits for its transfer sleeps in the kernel until completions arrive, takes all of them,
// whoever they belong to, and issues what was queued. One thread drives at a time; the others sleep until
// their transfer has ended or the driver, leaving, calls one of them to follow it. So a transfer costs the
// system calls that the kernel needs and no switch between threads. Only while more requests are queued than
// the depth allows and nobody waits does a thread of the engine drive (it is started when that happens
// first).
//
// [Note: kept back] What a batch keeps back is queued and not issued; whoever drives issues it with the rest.
//
// [Note: no workers] What the kernel cannot do at once it gives to threads of its own, and cancels where none
// can be started (a limit of threads). Whoever drives then carries such requests out by calls that block,
// with the lock released; the others are asked for with RWF_NOWAIT, so that the kernel needs no thread, until
// some time later it may have its threads again.
//
// Any thread may submit, so the ring is neither SINGLE_ISSUER nor DEFER_TASKRUN, and not COOP_TASKRUN either:
// with that, completions would keep until a thread that submitted and now computes enters the kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "aio/bounce_buffers.h"
#include "aio/file_table.h"
#include "aio/io_path.h"
#include "aio/registered_memory.h"
#include "aio/uring.h"

namespace headrace::aio {

class UringPath final : public IoPath, public std::enable_shared_from_this<UringPath> {
 public:
  // No request is added to `in_flight_bytes` or more.
  UringPath(const Uring::Options& options, Bytes in_flight_bytes, const RequestHook& hook);
  ~UringPath() override;

  void add(std::shared_ptr<Operation> operation, bool may_keep_back) override;
  void issue_kept_back() override;
  void prepare_to_bounce() override;
  void wait(Job& job) override;
  void wait_any(std::span<Job* const> jobs) override;
  void poll() override;
  int fix_file(const IoFile& file) override;
  void add_region(RegionId region, std::span<std::byte> memory) override { memory_.add(region, memory); }
  void remove_region(RegionId region) override { memory_.remove(region); }
  Bytes registered_bytes() const override { return registered_bytes_.load(); }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  struct Slot {
    Request request;
    std::byte* bounce = nullptr;  // of a bounced request
    bool registered = false;      // its memory, by a caller
    bool at_once = false;         // or not at all
  };
  // A request that has ended, to be reported with the lock released.
  struct Outcome {
    Request request;
    std::int64_t result = 0;
    std::byte* bounce = nullptr;  // still taken
    Bytes to_be_moved = 0;        // first, by a call that blocks
  };
  using Outcomes = std::vector<Outcome>;

  bool keep_back();
  void issue_queued() override;
  // All under the lock.
  bool in_flight() const { return free_slots_.size() < slots_.size(); }
  void issue_ready(Outcomes& at_once);
  bool has_to_block(const Piece& piece);
  bool lacks_workers() const;
  Outcome by_blocking(Request request, Bytes bytes);
  void issue(Request request, Bytes bytes);
  void prepare(io_uring_sqe* sqe, Slot& slot, Bytes bytes);
  void reap(Outcomes& ended);
  void end_slot(std::uint64_t index, std::int64_t result, Outcomes& ended);
  void submit(Outcomes& failed);
  std::uint32_t events_to_await(const Job* own) const;
  void pass_on();
  void wake_pump();

  class Driving;
  // These release the lock meanwhile.
  template <class Enough>
  void drive(Lock& lock, const Job* own, Enough enough);
  void advance(Lock& lock);
  void settle(Lock& lock, Outcomes& outcomes);
  void await_events(Lock& lock, std::uint32_t count);
  void pump();

  std::mutex mutex_;
  Uring ring_;
  FileTable files_{ring_};
  RegisteredMemory memory_{ring_};
  std::vector<Slot> slots_;  // requests in flight, by user_data
  std::vector<std::uint32_t> free_slots_;
  std::once_flag bounces_made_;
  BounceBuffers bounces_;
  const Bytes max_bytes_in_flight_;
  Bytes bytes_in_flight_ = 0;
  bool driven_ = false;
  Outcomes driver_outcomes_;
  int broken_ = 0;                        // an errno value: the ring can no longer be used
  Clock::time_point no_workers_until_{};  // the kernel could start no thread for what blocks
  std::deque<Job*> sleepers_;
  std::atomic<std::uint32_t> kept_back_{0};  // operations, or some that were issued since
  std::atomic<Bytes> registered_bytes_{0};

  std::condition_variable pump_needed_;
  bool stopping_ = false;
  std::thread pump_;
};

}  // namespace headrace::aio
