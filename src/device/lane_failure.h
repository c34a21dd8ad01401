// The first failure of any lane of a device. Any thread may call.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>

#include "headrace/device.h"

namespace headrace {

class LaneFailure {
 public:
  // Keeps the first error, of its own type, with lane and operation added to its message.
  void set(Lane lane, const char* operation, const std::exception_ptr& error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  void rethrow_if_failed() const;

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace headrace
