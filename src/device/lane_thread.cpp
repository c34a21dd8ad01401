#include "src/device/lane_thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <chrono>
#include <string>

namespace headrace {

void LaneEvent::fire() {
  {
    const std::lock_guard lock(mutex_);
    fired_.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void LaneEvent::wait() {
  if (fired()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return fired(); });
}

LaneThread::LaneThread(Lane lane, FirstFailure& failure, double largest_delay_seconds)
    : lane_(lane),
      largest_delay_seconds_(largest_delay_seconds),
      failure_(failure),
      random_(static_cast<unsigned>(lane) + 1),
      thread_([this] { run(); }) {
  ::pthread_setname_np(thread_.native_handle(), std::string(name_of(lane)).c_str());
}

LaneThread::~LaneThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void LaneThread::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_one();
}

void LaneThread::enqueue(const char* name, std::function<void()> work) {
  push({Kind::work, name, std::move(work), {}});
}

std::shared_ptr<LaneEvent> LaneThread::record() {
  auto event = std::make_shared<LaneEvent>(lane_);
  push({Kind::fire, nullptr, {}, event});
  return event;
}

void LaneThread::wait(std::shared_ptr<LaneEvent> event) {
  if (!event->fired()) push({Kind::await, nullptr, {}, std::move(event)});
}

LaneTimes LaneThread::times() const {
  LaneTimes times{.busy_seconds = static_cast<double>(busy_nanoseconds_.load()) * 1e-9,
                  .stalled_seconds = {},
                  .copied_bytes = copied_bytes_.load()};
  for (std::size_t lane = 0; lane < lane_count; ++lane)
    times.stalled_seconds[lane] = static_cast<double>(stalled_nanoseconds_[lane].load()) * 1e-9;
  return times;
}

void LaneThread::run() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    execute(item);
  }
}

void LaneThread::execute(Item& item) {
  using Clock = std::chrono::steady_clock;
  if (item.kind == Kind::fire) return item.event->fire();
  if (item.kind == Kind::work) hold_back();
  const auto start = Clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  };
  if (item.kind == Kind::await) {
    item.event->wait();
    stalled_nanoseconds_[static_cast<std::size_t>(item.event->lane())] += elapsed();
    return;
  }
  if (failure_.failed()) return;
  try {
    item.work();
  } catch (...) {
    failure_.set(fmt::format("in {} on the {} lane", item.name, name_of(lane_)), std::current_exception());
  }
  busy_nanoseconds_ += elapsed();
}

void LaneThread::hold_back() {
  if (largest_delay_seconds_ <= 0) return;
  std::uniform_real_distribution<double> delay(0, largest_delay_seconds_);
  std::this_thread::sleep_for(std::chrono::duration<double>(delay(random_)));
}

}  // namespace headrace
