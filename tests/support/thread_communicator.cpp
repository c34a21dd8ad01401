#include "tests/support/thread_communicator.h"

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "headrace/errors.h"

namespace headrace::testing {

class ThreadHub {
 public:
  explicit ThreadHub(int size) : size_(size), pointers_(static_cast<std::size_t>(size)) {}
  int size() const { return size_; }

  // All ranks publish a pointer; returns everybody's. leave() ends the phase: pointers stay valid until all
  // left.
  std::vector<const void*> enter(int rank, const void* pointer) {
    {
      const std::lock_guard lock(mutex_);
      pointers_[static_cast<std::size_t>(rank)] = pointer;
    }
    arrive();
    const std::lock_guard lock(mutex_);
    return pointers_;
  }
  void leave() { arrive(); }
  void arrive() {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      changed_.wait(lock, [&] { return round_ != round || broken_; });
    }
    if (broken_) throw Error("another rank of the test failed");
  }
  void break_all() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const void*> pointers_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  bool broken_ = false;
};

namespace {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadHub> hub, Device& device, int rank)
      : hub_(std::move(hub)), device_(device), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }

  void all_gather(void* buffer, std::span<const Bytes> pieces, Traffic traffic, std::string_view) override {
    counters_[traffic] += pieces[static_cast<std::size_t>(rank_)] * static_cast<Bytes>(size() - 1);
    run([this, buffer, pieces = std::vector<Bytes>(pieces.begin(), pieces.end())] {
      const auto all = hub_->enter(rank_, buffer);
      Bytes offset = 0;
      for (std::size_t r = 0; r < pieces.size(); ++r) {
        if (static_cast<int>(r) != rank_ && pieces[r] > 0)
          std::memcpy(static_cast<std::byte*>(buffer) + offset,
                      static_cast<const std::byte*>(all[r]) + offset, pieces[r]);
        offset += pieces[r];
      }
      hub_->leave();
    });
  }

  void all_to_all(std::span<const Piece> send, std::span<const Piece> receive, Traffic traffic,
                  std::string_view) override {
    for (std::size_t r = 0; r < send.size(); ++r)
      if (static_cast<int>(r) != rank_) counters_[traffic] += send[r].bytes;
    run([this, sends = std::vector<Piece>(send.begin(), send.end()),
         receives = std::vector<Piece>(receive.begin(), receive.end())] {
      const auto all = hub_->enter(rank_, &sends);
      for (std::size_t r = 0; r < receives.size(); ++r) {
        const Piece& piece =
            (*static_cast<const std::vector<Piece>*>(all[r]))[static_cast<std::size_t>(rank_)];
        HEADRACE_CHECK(piece.bytes == receives[r].bytes, "{} bytes sent, {} expected", piece.bytes,
                       receives[r].bytes);
        if (piece.bytes > 0) std::memcpy(receives[r].data, piece.data, piece.bytes);
      }
      hub_->leave();
    });
  }

  void all_reduce(std::span<float> values, Traffic traffic, std::string_view) override {
    reduce(values, traffic);
  }
  void all_reduce(std::span<double> values, Traffic traffic, std::string_view) override {
    reduce(values, traffic);
  }
  void all_reduce(std::span<std::uint64_t> values, Traffic traffic, std::string_view) override {
    reduce(values, traffic);
  }

  void broadcast(void* buffer, Bytes bytes, int root, Traffic traffic, std::string_view) override {
    if (rank_ == root) counters_[traffic] += bytes * static_cast<Bytes>(size() - 1);
    run([this, buffer, bytes, root] {
      const auto all = hub_->enter(rank_, buffer);
      if (rank_ != root) std::memcpy(buffer, all[static_cast<std::size_t>(root)], bytes);
      hub_->leave();
    });
  }

  void barrier(std::string_view) override {
    run([this] { hub_->arrive(); });
    device_.host_wait(device_.record(Lane::communicate));
  }

  std::unique_ptr<Communicator> split(int, int) override {
    throw UsageError("the test communicator does not split");
  }
  TrafficCounters counters() const override { return counters_; }

 private:
  void run(std::function<void()> work) {
    device_.enqueue(Lane::communicate, "test collective", std::move(work));
  }

  template <class T>
  void reduce(std::span<T> values, Traffic traffic) {
    counters_[traffic] += values.size_bytes() * static_cast<Bytes>(size() - 1);
    run([this, values] {
      const std::vector<T> mine(values.begin(), values.end());
      const auto all = hub_->enter(rank_, mine.data());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<const T*>(all[0])[i];
        for (std::size_t r = 1; r < all.size(); ++r) values[i] += static_cast<const T*>(all[r])[i];
      }
      hub_->leave();
    });
  }

  std::shared_ptr<ThreadHub> hub_;
  Device& device_;
  int rank_;
  TrafficCounters counters_;
};

}  // namespace

std::shared_ptr<ThreadHub> make_thread_hub(int size) {
  return std::make_shared<ThreadHub>(size);
}

std::unique_ptr<Communicator> make_thread_communicator(std::shared_ptr<ThreadHub> hub, Device& device,
                                                       int rank) {
  return std::make_unique<ThreadCommunicator>(std::move(hub), device, rank);
}

void run_ranks(int size, const std::function<void(int, const std::shared_ptr<ThreadHub>&)>& body) {
  const auto hub = make_thread_hub(size);
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank, hub);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        hub->break_all();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace headrace::testing
