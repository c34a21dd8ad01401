// Waits that end, so that what would hang fails with an assertion instead.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace headrace::test {

// Far beyond what a busy machine needs, and short of the time-outs of the tests.
inline constexpr std::chrono::seconds longest_wait{20};

// Whether `condition` became true in time.
template <class Condition>
bool eventually(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + longest_wait;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Holds back work that others must not wait for. Those who did would get past it only by its time-out.
class Gate {
 public:
  void open() { open_ = true; }
  void hold() {
    if (!eventually([this] { return open_.load(); })) timed_out_ = true;
  }
  bool timed_out() const { return timed_out_; }

 private:
  std::atomic<bool> open_{false}, timed_out_{false};
};

}  // namespace headrace::test
