// Keeps the copies of one lane to a rate, as a PCIe link would.
#pragma once

#include <chrono>

#include "headrace/bytes.h"

namespace headrace {

// Every copy of b bytes takes b/rate seconds, or what the copy itself takes when that is longer. Sleeping too
// long is paid back by the next copies, so that a busy link moves exactly its rate whatever the timer's
// errors; an idle link saves nothing up. One thread calls.
class LinkPacer {
 public:
  explicit LinkPacer(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}  // 0: not paced
  template <class Copy>
  void run(Bytes bytes, const Copy& copy) {
    if (bytes_per_second_ <= 0) return copy();
    const auto start = Clock::now();
    copy();
    occupy(start, bytes);
  }

 private:
  using Clock = std::chrono::steady_clock;
  void occupy(Clock::time_point start, Bytes bytes);

  double bytes_per_second_;
  Clock::duration overslept_{0};
  Clock::time_point last_end_{};
};

}  // namespace headrace
