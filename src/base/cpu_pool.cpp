#include "headrace/cpu_pool.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "headrace/errors.h"
#include "headrace/topology.h"
#include "src/base/node_pool.h"

namespace headrace {
namespace {

const CpuLimits& limits() {
  static const CpuLimits read = read_cpu_limits();
  return read;
}

const std::vector<NumaNode>& nodes() {
  static const std::vector<NumaNode> read = numa_nodes();
  return read;
}

struct Shared {
  std::mutex mutex;
  int wanted_threads = 0;
  std::shared_ptr<NodePool> pool;  // made by the first parallel_ranges
};

Shared& shared() {
  static Shared instance;
  return instance;
}

int threads_of(const Shared& state) {
  return state.wanted_threads > 0 ? state.wanted_threads : threads_per_rank(limits());
}

std::shared_ptr<NodePool> current_pool() {
  Shared& state = shared();
  const std::lock_guard lock(state.mutex);
  if (!state.pool) {
    const int threads = threads_of(state);
    state.pool = std::make_shared<NodePool>(threads, place_threads(nodes(), limits(), threads));
  }
  return state.pool;
}

struct Ranges {
  std::uint64_t count, grain;
  const std::function<void(std::uint64_t, std::uint64_t)>& body;
  std::uint64_t pieces() const { return count / grain + (count % grain != 0 ? 1 : 0); }
  void run(std::uint64_t piece) const {
    const std::uint64_t begin = piece * grain;
    body(begin, begin + std::min(grain, count - begin));
  }
};

void run_on_pool(const Ranges& ranges, const std::function<int(std::uint64_t)>* node_of) {
  HEADRACE_CHECK(ranges.grain > 0, "parallel_ranges with grain 0");
  const std::uint64_t pieces = ranges.pieces();
  if (pieces == 0) return;
  if (pieces == 1) return ranges.run(0);
  const std::function<void(std::uint64_t)> piece = [&](std::uint64_t k) { ranges.run(k); };
  const std::function<int(std::uint64_t)> node_of_piece = [&](std::uint64_t k) {
    return (*node_of)(k * ranges.grain);
  };
  current_pool()->run(
      {.count = pieces, .body = piece, .node_of = node_of == nullptr ? nullptr : &node_of_piece});
}

}  // namespace

int available_cpus() {
  return available_cpus(limits());
}

int cpu_threads() {
  const std::lock_guard lock(shared().mutex);
  return threads_of(shared());
}

std::vector<NodeThreads> cpu_placement() {
  return place_threads(nodes(), limits(), cpu_threads());
}

void set_cpu_threads(int threads) {
  if (threads < 0)
    throw UsageError(fmt::format("{} CPU threads: give at least 1, or 0 for the default", threads));
  Shared& state = shared();
  const std::lock_guard lock(state.mutex);
  state.wanted_threads = threads;
  if (state.pool && state.pool->threads() != threads_of(state)) state.pool.reset();
}

void parallel_ranges(std::uint64_t count, std::uint64_t grain,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& body) {
  run_on_pool({count, grain, body}, nullptr);
}

void parallel_ranges(std::uint64_t count, std::uint64_t grain,
                     const std::function<int(std::uint64_t begin)>& node_of,
                     const std::function<void(std::uint64_t begin, std::uint64_t end)>& body) {
  run_on_pool({count, grain, body}, &node_of);
}

}  // namespace headrace
