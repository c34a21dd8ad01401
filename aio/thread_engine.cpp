// pread and pwrite on threads: works everywhere, one thread per request in flight.
#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <vector>

#include "aio/aligned_memory.h"
#include "aio/blocking_request.h"
#include "aio/engine_thread.h"
#include "aio/queued_engine.h"
#include "headrace/errors.h"
#include "headrace/io_shape.h"
#include "headrace/log.h"

namespace headrace {
namespace aio {
namespace {

class ThreadPath final : public IoPath {
 public:
  // Fewer threads than asked for cost speed only.
  ThreadPath(std::uint32_t threads, const RequestHook& hook) : IoPath(hook) {
    threads_.reserve(threads);
    try {
      while (threads_.size() < threads) threads_.push_back(start_engine_thread([this] { run(); }));
    } catch (const std::system_error& refusal) {
      if (threads_.empty())
        throw Error(
            fmt::format("No thread for I/O could be started ({}): raise the limit of threads "
                        "(ulimit -u, pids.max).",
                        refusal.what()));
      warn_once("fewer I/O threads", fmt::format("{} threads of {} do I/O, more were refused ({}). Raise the "
                                                 "limit of threads (ulimit -u, pids.max).",
                                                 threads_.size(), threads, refusal.what()));
    }
  }
  ~ThreadPath() override { stop(); }

  void add(std::shared_ptr<Operation> operation, bool /*may_keep_back*/) override {
    queue_.add(std::move(operation));
  }
  void wait(Job& job) override {
    while (!job.finished()) job.sleep();
  }
  void poll() override {}

 private:
  void run() {
    AlignedMemory bounce;  // made when first needed
    while (const auto request = queue_.wait_next()) complete(*request, perform(*request, bounce));
  }

  std::int64_t perform(const Request& request, AlignedMemory& bounce) const {
    const std::int64_t admitted = admit(request);
    if (admitted <= 0) return admitted;
    const bool bounced = request.operation->bounced;
    try {
      if (bounced && !bounce) bounce = allocate_aligned(bounce_bytes, 4096);
    } catch (const std::bad_alloc&) {
      return -ENOMEM;
    }
    return carry_out(request, bounced ? bounce.get() : request.address(), static_cast<Bytes>(admitted));
  }

  void stop() {
    stop_retrying();
    queue_.close();
    for (std::thread& thread : threads_) thread.join();
  }

  std::vector<std::thread> threads_;
};

class ThreadEngine final : public QueuedEngine {
 public:
  ThreadEngine(const IoEngineOptions& options, RequestHook hook)
      : QueuedEngine(without_polling(options), std::move(hook)) {}
  std::string_view name() const override { return "threads"; }

 private:
  static IoEngineOptions without_polling(IoEngineOptions options) {
    options.poll_completions = options.poll_submissions = false;
    return options;
  }
  std::shared_ptr<IoPath> make_path(const IoShape& shape, bool /*polled*/) override {
    return std::make_shared<ThreadPath>(std::min(shape.queue_depth, most_io_threads), hook());
  }
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
