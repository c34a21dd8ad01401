#include "src/device/lane_thread.h"

#include <pthread.h>

#include "headrace/errors.h"

namespace headrace {

std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::upload:
      return "upload";
    case Lane::download:
      return "download";
    case Lane::communicate:
      return "communicate";
  }
  return "?";
}

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

void LaneFailure::set(Lane lane, const char* name, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (failed_.load()) return;
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    error_ = error;
  } catch (const std::exception& other) {
    error_ = std::make_exception_ptr(
        Error(fmt::format("{} on the {} lane failed: {}", name, name_of(lane), other.what())));
  }
  failed_.store(true, std::memory_order_release);
}

void LaneFailure::rethrow_if_failed() const {
  if (!failed()) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

LaneThread::LaneThread(Lane lane, LaneFailure& failure)
    : lane_(lane), failure_(failure), thread_([this] { run(); }) {
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
  push({.name = name, .work = std::move(work), .fire = {}, .await = {}});
}

std::shared_ptr<LaneEvent> LaneThread::record() {
  auto event = std::make_shared<LaneEvent>();
  push({.name = nullptr, .work = {}, .fire = event, .await = {}});
  return event;
}

void LaneThread::wait(std::shared_ptr<LaneEvent> event) {
  if (!event->fired()) push({.name = nullptr, .work = {}, .fire = {}, .await = std::move(event)});
}

LaneTimes LaneThread::times() const {
  return {.busy_seconds = static_cast<double>(busy_nanoseconds_.load()) * 1e-9,
          .stalled_seconds = static_cast<double>(stalled_nanoseconds_.load()) * 1e-9,
          .copied_bytes = copied_bytes_.load()};
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
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
        .count();
  };
  if (item.await) {
    item.await->wait();
    stalled_nanoseconds_ += elapsed();
  } else if (item.fire) {
    item.fire->fire();
  } else if (!failure_.failed()) {
    try {
      item.work();
    } catch (...) {
      failure_.set(lane_, item.name, std::current_exception());
    }
    busy_nanoseconds_ += elapsed();
  }
}

}  // namespace headrace
