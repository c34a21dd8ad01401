#include "tests/support/delaying_io_engine.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace headrace::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

Nanoseconds cost(const DeviceSpeed& speed, Bytes bytes) {
  const double transfer =
      speed.bytes_per_second > 0 ? static_cast<double>(bytes) / speed.bytes_per_second : 0;
  return speed.fixed + std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(transfer));
}

class DelayingEngine final : public IoEngine {
 public:
  DelayingEngine(std::unique_ptr<IoEngine> inner, const DelayPlan& plan)
      : inner_(std::move(inner)), plan_(plan) {}

  std::string_view name() const override { return "delaying"; }

  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    IoTicket inner = inner_->submit(direction, file, offset, std::move(buffer), bytes);
    const auto ready =
        is_late(direction, offset, bytes) ? Clock::now() + plan_.late->time : occupy(direction, bytes);
    return IoTicket(std::make_unique<Ticket>(std::move(inner), ready, slept_nanoseconds_));
  }

  IoRegistration register_memory(std::span<std::byte> memory) override {
    return inner_->register_memory(memory);
  }

  IoCounters counters() const override {
    IoCounters counters = inner_->counters();
    counters.wait_seconds += static_cast<double>(slept_nanoseconds_.load()) * 1e-9;
    return counters;
  }

 private:
  class Ticket final : public IoTicket::State {
   public:
    Ticket(IoTicket inner, Clock::time_point ready, std::atomic<std::int64_t>& slept)
        : inner_(std::move(inner)), ready_(ready), slept_nanoseconds_(slept) {}

    IoResult wait() override {
      const IoResult result = inner_.wait();
      const auto before = Clock::now();
      if (before < ready_) {
        std::this_thread::sleep_until(ready_);
        slept_nanoseconds_ += Nanoseconds(Clock::now() - before).count();
      }
      return result;
    }
    bool done() override { return inner_.done() && Clock::now() >= ready_; }
    HostLease take() override {
      (void)wait();
      return inner_.take();
    }

   private:
    IoTicket inner_;
    Clock::time_point ready_;
    std::atomic<std::int64_t>& slept_nanoseconds_;
  };

  bool is_late(IoDirection direction, std::uint64_t offset, Bytes bytes) {
    const auto& late = plan_.late;
    return late && direction == IoDirection::read && offset <= late->offset &&
           late->offset < offset + bytes && !was_late_.exchange(true);
  }

  // The time at which the modelled device has done this transfer and all before it.
  Clock::time_point occupy(IoDirection direction, Bytes bytes) {
    const bool read = direction == IoDirection::read;
    const std::lock_guard lock(mutex_);
    Clock::time_point& free_at = read || plan_.shared_path ? read_free_at_ : write_free_at_;
    free_at = std::max(free_at, Clock::now()) + cost(read ? plan_.read : plan_.write, bytes);
    return free_at;
  }

  std::unique_ptr<IoEngine> inner_;
  const DelayPlan plan_;
  std::mutex mutex_;
  Clock::time_point read_free_at_{}, write_free_at_{};
  std::atomic<std::int64_t> slept_nanoseconds_{0};
  std::atomic<bool> was_late_{false};
};

}  // namespace

std::unique_ptr<IoEngine> make_delaying_engine(std::unique_ptr<IoEngine> inner, const DelayPlan& plan) {
  return std::make_unique<DelayingEngine>(std::move(inner), plan);
}

}  // namespace headrace::testing
