// Signals that interrupt system calls again and again.
#pragma once

#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <csignal>

namespace headrace::testing {

// SIGALRM at each interval, until the end of the object or, so that what can only end without signals ends
// too, `most` of them. One at a time.
class RepeatedAlarms {
 public:
  static constexpr int most = 2000;

  explicit RepeatedAlarms(std::chrono::microseconds interval) {
    count_ = 0;
    struct sigaction action {};  // without SA_RESTART
    action.sa_handler = [](int) {
      if (++count_ == most) set_interval(0);
    };
    ::sigaction(SIGALRM, &action, &before_);
    set_interval(interval.count());
  }
  RepeatedAlarms(const RepeatedAlarms&) = delete;
  RepeatedAlarms& operator=(const RepeatedAlarms&) = delete;
  ~RepeatedAlarms() {
    set_interval(0);
    ::sigaction(SIGALRM, &before_, nullptr);
  }
  static int count() { return count_; }

 private:
  static void set_interval(std::chrono::microseconds::rep microseconds) {
    const itimerval timer{{0, microseconds}, {0, microseconds}};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
  }

  static inline std::atomic<int> count_{0};
  struct sigaction before_ {};
};

}  // namespace headrace::testing
