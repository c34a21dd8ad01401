// Streams that really run side by side: each is a thread that takes its work in order. What is ordered before
// what is known when work is enqueued (clocks.h), and does not depend on how the threads happened to run.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "support/cuda_emulation/accesses.h"
#include "support/cuda_emulation/clocks.h"

namespace cuda_emulation {

// The point that an event was recorded at.
struct Completion {
  VectorClock clock;
  std::atomic<bool> done{false};
  std::chrono::steady_clock::time_point when;
  void finish();
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class Stream {
 public:
  Stream();
  ~Stream();  // after its work
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void enqueue(const char* name, std::function<void()> work);
  std::shared_ptr<Completion> record();
  void wait(std::shared_ptr<Completion> completion);

 private:
  struct Item {
    Moment moment;
    std::function<void()> work;
    std::shared_ptr<Completion> completion;  // to wait for, or without work to finish
    enum class Kind : std::uint8_t { work, finish, await } kind = Kind::work;
  };
  void push(Item item);
  void run();
  void execute(Item& item);
  void hold_back();

  Moment moment_;  // of the last enqueued work; the owner thread's
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  Accesses accesses_;
  std::minstd_rand random_;
  std::thread thread_;
};

// The host has seen `completion`: what it does from now on is ordered after.
void host_has_seen(const Completion& completion);

// The failure that a real device would stick to: later work is dropped, and every call says so.
bool device_has_failed();
void fail_device(int status);
int device_failure();

}  // namespace cuda_emulation
