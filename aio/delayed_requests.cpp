#include "aio/delayed_requests.h"

#include <new>
#include <system_error>

#include "aio/engine_thread.h"

namespace headrace::aio {

bool DelayedRequests::add(const Request& request, std::chrono::microseconds pause) {
  try {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = start_engine_thread([this] { run(); });
    waiting_.emplace(Clock::now() + pause, request);
  } catch (const std::system_error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  changed_.notify_one();
  return true;
}

void DelayedRequests::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void DelayedRequests::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
    } else if (const auto due = waiting_.begin()->first; Clock::now() < due) {
      changed_.wait_until(lock, due);
    } else {
      const auto next = waiting_.extract(waiting_.begin());
      lock.unlock();
      at_time_(next.mapped());
      lock.lock();
    }
  }
}

}  // namespace headrace::aio
