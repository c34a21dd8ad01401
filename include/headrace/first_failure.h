// The first failure of work that runs behind its caller's back; thrown where the caller waits. Any thread may
// call.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <string_view>

namespace headrace {

class FirstFailure {
 public:
  // Keeps the first error, of its own type, with `where` ("in copy on the upload lane") added to its message.
  void set(std::string_view where, const std::exception_ptr& error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  void rethrow_if_failed() const;

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace headrace
