// One in-order lane of the CPU device: a thread and its queue.
//
// Threads: any thread enqueues; the lane's own thread runs the work. After a failure of any lane later work
// is dropped, but events still fire, so that nothing waits for ever.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "headrace/device.h"
#include "headrace/first_failure.h"

namespace headrace {

// A point in a lane; fires once.
class LaneEvent final : public Event::State {
 public:
  explicit LaneEvent(Lane lane) : lane_(lane) {}
  Lane lane() const { return lane_; }
  void fire();
  bool fired() const { return fired_.load(std::memory_order_acquire); }
  void wait();

 private:
  const Lane lane_;
  std::atomic<bool> fired_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

class LaneThread {
 public:
  // Holds each piece of work back by a random time up to largest_delay_seconds.
  LaneThread(Lane lane, FirstFailure& failure, double largest_delay_seconds);
  ~LaneThread();  // runs what is queued first
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

  void enqueue(const char* name, std::function<void()> work);
  std::shared_ptr<LaneEvent> record();
  void wait(std::shared_ptr<LaneEvent> event);
  void add_copied(Bytes bytes) { copied_bytes_ += bytes; }
  LaneTimes times() const;

 private:
  enum class Kind : std::uint8_t { work, fire, await };
  struct Item {
    Kind kind = Kind::work;
    const char* name = nullptr;
    std::function<void()> work;
    std::shared_ptr<LaneEvent> event;
  };
  void push(Item item);
  void run();
  void execute(Item& item);
  void hold_back();

  const Lane lane_;
  const double largest_delay_seconds_;
  FirstFailure& failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  std::minstd_rand random_;
  std::atomic<std::int64_t> busy_nanoseconds_{0};
  std::array<std::atomic<std::int64_t>, lane_count> stalled_nanoseconds_{};  // by the lane waited for
  std::atomic<Bytes> copied_bytes_{0};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace headrace
