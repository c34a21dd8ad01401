// Requests that the kernel could not take (EAGAIN), until the time to ask again. They wait beside the others:
// whoever completes those never sleeps for one of these.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "aio/request_queue.h"

namespace headrace::aio {

// Thread-safe. A thread of its own, started with the first request, tells of each when its pause is over.
class DelayedRequests {
 public:
  using AtTime = std::function<void(const Request&)>;
  explicit DelayedRequests(AtTime at_time) : at_time_(std::move(at_time)) {}
  DelayedRequests(const DelayedRequests&) = delete;
  DelayedRequests& operator=(const DelayedRequests&) = delete;
  ~DelayedRequests() { stop(); }

  // False where there is no thread or memory for it: it is the caller's to wait then.
  bool add(const Request& request, std::chrono::microseconds pause);
  // Blocks until the thread has ended. What still waits is forgotten.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  void run();

  const AtTime at_time_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, Request> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace headrace::aio
