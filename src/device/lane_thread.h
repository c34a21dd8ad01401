// One in-order lane of the CPU device: a thread and its queue.
//
// Threads: any thread enqueues; the lane's own thread runs the work. After the first failure later work is
// dropped, but events still fire, so that nothing waits for ever; the failure is kept in a state shared by
// all lanes of the device.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "headrace/device.h"

namespace headrace {

// A point in a lane; fires once.
class LaneEvent final : public Event::State {
 public:
  void fire();
  bool fired() const { return fired_.load(std::memory_order_acquire); }
  void wait();

 private:
  std::atomic<bool> fired_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// The first failure of any lane.
class LaneFailure {
 public:
  void set(Lane lane, const char* name, std::exception_ptr error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Rethrows; an Error keeps its type, anything else becomes an Error naming lane and operation.
  void rethrow_if_failed() const;

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

class LaneThread {
 public:
  LaneThread(Lane lane, LaneFailure& failure);
  ~LaneThread();
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

  void enqueue(const char* name, std::function<void()> work);
  std::shared_ptr<LaneEvent> record();
  void wait(std::shared_ptr<LaneEvent> event);
  void add_copied(Bytes bytes) { copied_bytes_ += bytes; }
  LaneTimes times() const;

 private:
  struct Item {
    const char* name = nullptr;
    std::function<void()> work;
    std::shared_ptr<LaneEvent> fire, await;
  };
  void push(Item item);
  void run();
  void execute(Item& item);

  Lane lane_;
  LaneFailure& failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  std::atomic<std::int64_t> busy_nanoseconds_{0}, stalled_nanoseconds_{0};
  std::atomic<Bytes> copied_bytes_{0};
  std::thread thread_;
};

}  // namespace headrace
