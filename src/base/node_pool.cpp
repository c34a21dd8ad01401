#include "src/base/node_pool.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "headrace/errors.h"
#include "src/base/piece_queues.h"
#include "src/base/processor_topology.h"

namespace headrace {
namespace {

// Where this thread takes part in a pool; the innermost last.
struct Here {
  const NodePool* pool;
  std::size_t home;
  BoundToCpus bound;
  Here(const NodePool* of, std::size_t at) : pool(of), home(at), bound(of->placement()[at].cpus) {}
};
thread_local std::deque<Here> here;

struct TakesPart {
  TakesPart(const NodePool* pool, std::size_t home) { here.emplace_back(pool, home); }
  TakesPart(const TakesPart&) = delete;
  TakesPart& operator=(const TakesPart&) = delete;
  ~TakesPart() { here.pop_back(); }
};

// Binds the threads that enter an arena, the caller's among them, until they leave it.
class Binder final : public oneapi::tbb::task_scheduler_observer {
 public:
  Binder(const NodePool* pool, std::size_t home, oneapi::tbb::task_arena& arena)
      : task_scheduler_observer(arena), pool_(pool), home_(home) {
    observe(true);
  }
  ~Binder() override { observe(false); }
  void on_scheduler_entry(bool) override { here.emplace_back(pool_, home_); }
  void on_scheduler_exit(bool) override {
    if (!here.empty()) here.pop_back();
  }

 private:
  const NodePool* pool_;
  std::size_t home_;
};

#if defined(__SANITIZE_THREAD__)
constexpr bool plain_threads = true;
#else
constexpr bool plain_threads = false;
#endif

}  // namespace

BoundToCpus::BoundToCpus(const std::vector<int>& cpus) {
  const hwloc_topology_t topology = processor_topology();
  if (topology == nullptr || cpus.empty()) return;
  before_ = hwloc_bitmap_alloc();
  hwloc_bitmap_t wanted = hwloc_bitmap_alloc();
  for (const int cpu : cpus) hwloc_bitmap_set(wanted, static_cast<unsigned>(cpu));
  const bool bound = hwloc_get_cpubind(topology, before_, HWLOC_CPUBIND_THREAD) == 0 &&
                     hwloc_set_cpubind(topology, wanted, HWLOC_CPUBIND_THREAD) == 0;
  hwloc_bitmap_free(wanted);
  if (bound) return;
  hwloc_bitmap_free(before_);
  before_ = nullptr;
}

BoundToCpus::~BoundToCpus() {
  if (before_ == nullptr) return;
  hwloc_set_cpubind(processor_topology(), before_, HWLOC_CPUBIND_THREAD);
  hwloc_bitmap_free(before_);
}

// `control` lets oneTBB start as many threads as asked for, where that is more than the machine has. The
// first arena has a place for the caller; a thread outside waits for it while another caller is there.
struct NodePool::Arenas {
  Arenas(const NodePool* pool, int threads, const std::vector<NodeThreads>& placement)
      : control(oneapi::tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads)) {
    if (placement.empty()) arenas.emplace_back(threads);
    for (const NodeThreads& home : placement) {
      const std::size_t number = arenas.size();
      arenas.emplace_back(home.threads, number == 0 ? 1 : 0);
      arenas.back().initialize();
      binders.emplace_back(pool, number, arenas.back());
    }
  }
  oneapi::tbb::global_control control;
  std::deque<oneapi::tbb::task_arena> arenas;
  std::deque<Binder> binders;
};

NodePool::NodePool(int threads, std::vector<NodeThreads> placement)
    : threads_(threads),
      placement_(std::move(placement)),
      arenas_(std::make_unique<Arenas>(this, threads, placement_)) {
  const int placed = std::accumulate(placement_.begin(), placement_.end(), 0,
                                     [](int sum, const NodeThreads& home) { return sum + home.threads; });
  HEADRACE_CHECK(placement_.empty() || placed == threads, "{} threads of {} have a place", placed, threads);
}

NodePool::~NodePool() = default;

void NodePool::run(const PieceWork& work) {
  if (work.count == 0) return;
  if (work.count == 1) return work.body(0);
  if (threads_ == 1)
    run_alone(work);
  else if (placement_.empty())
    run_unbound(work);
  else
    run_bound(work);
}

void NodePool::run_alone(const PieceWork& work) {
  std::optional<TakesPart> bound;
  if (!placement_.empty() && !called_from_inside()) bound.emplace(this, 0);
  for (std::uint64_t piece = 0; piece < work.count; ++piece) work.body(piece);
}

bool NodePool::called_from_inside() const {
  return !here.empty() && here.back().pool == this;
}

void NodePool::run_unbound(const PieceWork& work) {
  const auto runners = std::min(work.count, static_cast<std::uint64_t>(threads_));
  PieceQueues queues(work.count, work.body, std::vector<std::uint64_t>(runners, 1));
  if constexpr (plain_threads) {
    // The system's oneTBB is not instrumented: the thread sanitizer cannot see what its scheduler orders.
    // Plain threads it can.
    std::vector<std::jthread> others;
    for (std::uint64_t k = 1; k < runners; ++k)
      others.emplace_back([&queues, k] { queues.take_until_none(k); });
    queues.take_until_none(0);
    others.clear();
  } else {
    // Isolated: a caller that waits for its last piece must not start on another caller's.
    const auto take = [&](std::uint64_t) {
      const auto place = static_cast<std::size_t>(oneapi::tbb::this_task_arena::current_thread_index());
      queues.take_until_none(place % runners);
    };
    arenas_->arenas.front().execute([&] {
      oneapi::tbb::this_task_arena::isolate(
          [&] { oneapi::tbb::parallel_for(std::uint64_t{0}, runners, take); });
    });
  }
  queues.wait();
}

void NodePool::run_bound(const PieceWork& work) {
  const auto home_of = [&](std::uint64_t piece) {
    const int node = (*work.node_of)(piece);
    const auto found = std::find_if(placement_.begin(), placement_.end(), [node](const NodeThreads& home) {
      return node >= 0 && home.node == node;
    });
    return static_cast<std::size_t>(found - placement_.begin());
  };
  std::vector<std::uint64_t> weights;
  for (const NodeThreads& home : placement_) weights.push_back(static_cast<std::uint64_t>(home.threads));
  const auto queues = work.node_of == nullptr
                          ? std::make_shared<PieceQueues>(work.count, work.body, weights)
                          : std::make_shared<PieceQueues>(work.count, work.body, placement_.size(), home_of);
  // A thread of this pool that calls goes on where it is.
  const bool inside = called_from_inside();
  const std::size_t own = inside ? here.back().home : 0;
  std::vector<std::jthread> plain;
  for (std::size_t home = 0; home < placement_.size(); ++home) {
    const auto others = static_cast<std::uint64_t>(placement_[home].threads - (home == own ? 1 : 0));
    for (std::uint64_t runner = 0; runner < std::min(others, work.count); ++runner) {
      if constexpr (plain_threads)
        plain.emplace_back([this, queues, home] {
          const TakesPart bound(this, home);
          queues->take_until_none(home);
        });
      else
        arenas_->arenas[home].enqueue([queues, home] { queues->take_until_none(home); });
    }
  }
  if (inside) {
    queues->take_until_none(own);
  } else if constexpr (plain_threads) {
    const TakesPart bound(this, own);
    queues->take_until_none(own);
  } else {
    arenas_->arenas[own].execute([&] { queues->take_until_none(own); });
  }
  queues->wait();
}

}  // namespace headrace
