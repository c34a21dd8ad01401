// Ends the job when NCCL waits too long for the other ranks, in a kernel or in a call. NCCL itself waits for
// ever.
//
// Threads: one owner thread calls; a thread of the watchdog's own looks. [Note: no abort] The process is
// ended while NCCL's kernel still waits: aborting it first would let the lane go on with data that never
// came.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "gpu/event_pool.h"

namespace headrace {

// What is being waited for.
struct NcclOperation {
  const char* name = "";
  std::uint64_t sequence = 0;
  std::string label;
  std::string text() const;  // all_gather #7 of "h.3"
};

class NcclWatchdog {
 public:
  // `rank` is the job's, for messages.
  NcclWatchdog(int rank, double timeout_seconds);
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  // The communicator whose own errors end the job while an operation is under way; null: none.
  void set_communicator(ncclComm_t communicator);

  // From begins() on the owner is inside NCCL for `operation`, until ends() or fails(). What it enqueues on
  // `stream` meanwhile is watched until it has run. One stream alone, or none (a call that waits by itself).
  void begins(const NcclOperation& operation, cudaStream_t stream = nullptr);
  void ends();
  void fails();

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    NcclOperation operation;
    Clock::time_point since;
    cudaStream_t stream;
    std::shared_ptr<EventPool::Recorded> start;
  };
  struct Enqueued {
    NcclOperation operation;
    std::shared_ptr<EventPool::Recorded> start, end;
    std::optional<Clock::time_point> started;
  };
  void watch();
  void check_stream();
  void check_communicator(const NcclOperation& operation) const;
  void require_in_time(const NcclOperation& operation, Clock::time_point since) const;
  [[noreturn]] void end_job(const std::string& what) const;

  const int rank_;
  const double timeout_seconds_;
  int device_ = 0;  // of the owner thread
  const std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  ncclComm_t communicator_ = nullptr;
  std::optional<Call> call_;
  std::deque<Enqueued> enqueued_;  // in the stream's order
  std::thread thread_;             // last: it uses all of the above
};

}  // namespace headrace
