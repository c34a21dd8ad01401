#include "headrace/cpu_pool.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "headrace/errors.h"
#include "src/base/topology.h"

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
  pool->arena.execute([&] {
    oneapi::tbb::parallel_for(oneapi::tbb::blocked_range<std::uint64_t>(0, pieces),
                              [&](const oneapi::tbb::blocked_range<std::uint64_t>& range) {
                                for (std::uint64_t k = range.begin(); k < range.end(); ++k) piece(k);
                              });
  });
}

}  // namespace headrace
