// pread and pwrite on a pool of threads: works everywhere, one thread per request in flight.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "aio/engine_thread.h"
#include "aio/queued_engine.h"

namespace headrace {
namespace aio {
namespace {

constexpr std::uint32_t max_threads = 64;

class ThreadEngine final : public QueuedEngine {
 public:
  ThreadEngine(const IoEngineOptions& options, RequestHook hook) : QueuedEngine(options, std::move(hook)) {
    const std::uint32_t count = std::min(options.queue_depth, max_threads);
    try {
      while (threads_->size() < count) threads_->push_back(start_engine_thread([this] { run(); }));
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ThreadEngine() override { stop(); }

  std::string_view name() const override { return "threads"; }

 private:
  void wake() override {}  // the queue wakes its waiters itself

  void run() {
    while (const auto request = queue_->wait_next()) complete(*request, perform(*request));
  }

  std::int64_t perform(const Request& request) const {
    const std::int64_t admitted = admit(request);
    if (admitted <= 0) return admitted;
    const auto bytes = static_cast<std::size_t>(admitted);
    const auto offset = static_cast<off_t>(request.offset());
    const Operation& operation = *request.operation;
    const ssize_t moved = operation.direction == IoDirection::read
                              ? ::pread(operation.fd, request.address(), bytes, offset)
                              : ::pwrite(operation.fd, request.address(), bytes, offset);
    return moved < 0 ? -errno : moved;
  }

  void stop() {
    if (in_forked_child()) {
      (void)threads_
          .release();  // they do not exist here, and a std::thread can neither be joined nor forgotten
      return;
    }
    queue_->close();
    for (std::thread& thread : *threads_) thread.join();
  }

  std::unique_ptr<std::vector<std::thread>> threads_ = std::make_unique<std::vector<std::thread>>();
};

}  // namespace

std::unique_ptr<IoEngine> make_thread_engine(const IoEngineOptions& options, RequestHook hook) {
  return std::make_unique<ThreadEngine>(options, std::move(hook));
}

}  // namespace aio

std::unique_ptr<IoEngine> make_thread_engine(const IoEngineOptions& options) {
  return aio::make_thread_engine(options, {});
}

}  // namespace headrace
