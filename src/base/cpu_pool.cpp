#include "headrace/cpu_pool.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/errors.h"
#include "headrace/topology.h"

namespace headrace {
namespace {

const CpuLimits& limits() {
  static const CpuLimits read = read_cpu_limits();
  return read;
}

// `control` lets oneTBB start as many threads as asked for, where that is more than the machine has.
struct Pool {
  explicit Pool(int thread_count)
      : threads(thread_count),
        control(oneapi::tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(thread_count)),
        arena(thread_count) {}
  int threads;
  oneapi::tbb::global_control control;
  oneapi::tbb::task_arena arena;
};

struct Shared {
  std::mutex mutex;
  int wanted_threads = 0;
  std::shared_ptr<Pool> pool;  // made by the first parallel_ranges
};

Shared& shared() {
  static Shared instance;
  return instance;
}

int threads_of(const Shared& state) {
  return state.wanted_threads > 0 ? state.wanted_threads : threads_per_rank(limits());
}

std::shared_ptr<Pool> current_pool() {
  Shared& state = shared();
  const std::lock_guard lock(state.mutex);
  if (!state.pool) state.pool = std::make_shared<Pool>(threads_of(state));
  return state.pool;
}

// Runs `work` once on each of `runners` threads, this one among them, and waits. Threads that come late find
// no piece left.
void run_on_pool(Pool& pool, int runners, const std::function<void()>& work) {
#if defined(__SANITIZE_THREAD__)
  // The system's oneTBB is not instrumented: the thread sanitizer cannot see what its scheduler orders. Plain
  // threads it can.
  std::vector<std::jthread> others;
  for (int k = 1; k < runners && k < pool.threads; ++k) others.emplace_back(work);
  work();
#else
  // Isolated: a caller that waits for its last piece must not start on another caller's.
  pool.arena.execute([&] {
    oneapi::tbb::this_task_arena::isolate(
        [&] { oneapi::tbb::parallel_for(0, runners, [&](int) { work(); }); });
  });
#endif
}

// The pieces of one parallel_ranges, taken one by one by whichever thread is free.
class Pieces {
 public:
  Pieces(std::uint64_t count, std::function<void(std::uint64_t)> body)
      : count_(count), body_(std::move(body)) {}

  void take_until_none() noexcept {
    try {
      for (std::uint64_t k; (k = next_.fetch_add(1)) < count_;) body_(k);
    } catch (...) {
      next_ = count_;
      const std::lock_guard lock(mutex_);
      if (!first_error_) first_error_ = std::current_exception();
    }
  }

  void rethrow_first_error() const {  // after every thread has finished
    if (first_error_) std::rethrow_exception(first_error_);
  }

 private:
  const std::uint64_t count_;
  const std::function<void(std::uint64_t)> body_;
  std::atomic<std::uint64_t> next_ = 0;
  std::mutex mutex_;
  std::exception_ptr first_error_;
};

}  // namespace

int available_cpus() {
  return available_cpus(limits());
}

int cpu_threads() {
  const std::lock_guard lock(shared().mutex);
  return threads_of(shared());
}

void set_cpu_threads(int threads) {
  if (threads < 0)
    throw UsageError(fmt::format("{} CPU threads: give at least 1, or 0 for the default", threads));
  Shared& state = shared();
  const std::lock_guard lock(state.mutex);
  state.wanted_threads = threads;
  if (state.pool && state.pool->threads != threads_of(state)) state.pool.reset();
}

void parallel_ranges(std::uint64_t count, std::uint64_t grain,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& body) {
  HEADRACE_CHECK(grain > 0, "parallel_ranges with grain 0");
  const std::uint64_t pieces = count / grain + (count % grain != 0 ? 1 : 0);
  const auto piece = [&](std::uint64_t k) { body(k * grain, std::min(count, (k + 1) * grain)); };
  if (pieces == 0) return;
  if (pieces == 1) return piece(0);

  const std::shared_ptr<Pool> pool = current_pool();
  if (pool->threads == 1) {
    for (std::uint64_t k = 0; k < pieces; ++k) piece(k);
    return;
  }
  Pieces taken(pieces, piece);
  const auto runners =
      static_cast<int>(std::min<std::uint64_t>(pieces, static_cast<std::uint64_t>(pool->threads)));
  run_on_pool(*pool, runners, [&] { taken.take_until_none(); });
  taken.rethrow_first_error();
}

}  // namespace headrace
