#include "headrace/numa_memory.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "headrace/cpu_pool.h"
#include "src/base/node_pool.h"

namespace headrace {
namespace {

constexpr Bytes page_bytes = 4096;

struct Placed {
  const std::byte* end;
  int node;
};
// Placed memory of this process, by its start.
struct Known {
  std::shared_mutex mutex;
  std::map<const std::byte*, Placed> runs;
};
Known& known() {
  static Known instance;
  return instance;
}

// Pages are handed out where they are written first. What is there stays.
void touch(std::span<std::byte> memory) {
  for (Bytes at = 0; at < memory.size(); at += page_bytes) {
    volatile std::byte* const byte = memory.data() + at;
    *byte = *byte;
  }
}

// Touches this thread's part of what is dealt to its node, a run as a whole: huge pages are not torn.
void touch_runs(std::span<std::byte> memory, const std::vector<NodeRun>& runs, const NodeThreads& home,
                int thread) {
  const BoundToCpus bound(home.cpus);
  int turn = 0;
  for (const NodeRun& run : runs)
    if (run.node == home.node && turn++ % home.threads == thread)
      touch(memory.subspan(run.begin, run.end - run.begin));
}

void touch_on_nodes(std::span<std::byte> memory, const std::vector<NodeRun>& runs,
                    const std::vector<NodeThreads>& placement) {
  std::vector<std::jthread> threads;
  for (const NodeThreads& home : placement)
    for (int thread = 0; thread < home.threads; ++thread) try {
        threads.emplace_back([&, thread] { touch_runs(memory, runs, home, thread); });
      } catch (const std::system_error&) {  // no more threads: this one goes there
        touch_runs(memory, runs, home, thread);
      }
}

// Where the kernel put it: elsewhere when the node was full. What was meant, where it does not tell (a
// container without CAP_SYS_NICE).
int actual_node(std::byte* page, int meant) {
  void* pages[] = {page};
  int status[] = {-1};
  if (::syscall(SYS_move_pages, 0, 1UL, pages, nullptr, status, 0) != 0 || status[0] < 0) return meant;
  return status[0];
}

std::byte* middle_page(std::span<std::byte> run) {
  std::byte* const middle = run.data() + run.size() / 2;
  return middle - reinterpret_cast<std::uintptr_t>(middle) % page_bytes;
}

}  // namespace

NodeMemory::NodeMemory(std::span<std::byte> memory, const std::vector<NodeRun>& runs) {
  if (runs.empty()) return;
  touch_on_nodes(memory, runs, cpu_placement());
  runs_.reserve(runs.size());
  const std::lock_guard lock(known().mutex);
  for (const NodeRun& run : runs) {
    const std::span<std::byte> part = memory.subspan(run.begin, run.end - run.begin);
    if (part.empty()) continue;
    known().runs[part.data()] = {part.data() + part.size(), actual_node(middle_page(part), run.node)};
    runs_.push_back(part.data());
  }
}

NodeMemory::NodeMemory(NodeMemory&& other) noexcept : runs_(std::exchange(other.runs_, {})) {}

NodeMemory& NodeMemory::operator=(NodeMemory&& other) noexcept {
  if (this != &other) {
    forget();
    runs_ = std::exchange(other.runs_, {});
  }
  return *this;
}

NodeMemory::~NodeMemory() {
  forget();
}

void NodeMemory::forget() noexcept {
  if (runs_.empty()) return;
  const std::lock_guard lock(known().mutex);
  for (const std::byte* start : runs_) known().runs.erase(start);
  runs_.clear();
}

int node_of(const void* address) {
  const auto* const byte = static_cast<const std::byte*>(address);
  const std::shared_lock lock(known().mutex);
  const auto after = known().runs.upper_bound(byte);
  if (after == known().runs.begin()) return -1;
  const Placed& placed = std::prev(after)->second;
  return byte < placed.end ? placed.node : -1;
}

}  // namespace headrace
