// On a machine of two nodes, as hwloc describes it to a process of its own; the kernel's memory has as many
// nodes as it has.
#include "headrace/numa_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>

#include "headrace/cpu_pool.h"
#include "tests/support/two_nodes.h"

namespace headrace {
namespace {

class Mapped {
 public:
  explicit Mapped(Bytes bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { ::munmap(data_, bytes_); }
  std::span<std::byte> memory() const { return {static_cast<std::byte*>(data_), bytes_}; }
  Bytes resident_bytes() const {
    std::vector<unsigned char> pages(bytes_ / 4096);
    ::mincore(data_, bytes_, pages.data());
    return 4096 * static_cast<Bytes>(std::count_if(pages.begin(), pages.end(),
                                                   [](unsigned char page) { return (page & 1) != 0; }));
  }

 private:
  Bytes bytes_;
  void* data_;
};

constexpr Bytes run_bytes = Bytes{16} << 20;
const std::vector<Bytes> four_runs(4, run_bytes);

TEST(NodeMemory, on_one_node_touches_nothing_and_knows_nothing) {
  if (!cpu_placement().empty()) GTEST_SKIP() << "this machine has several nodes";
  const Mapped mapped(4 * run_bytes);
  const NodeMemory placed(mapped.memory(), deal_blocks(cpu_placement(), four_runs));
  EXPECT_EQ(mapped.resident_bytes(), 0u);
  EXPECT_EQ(node_of(mapped.memory().data()), -1);
}

// Exits with the number of the claim that does not hold.
[[noreturn]] void check_two_nodes() {
  headrace::testing::pretend_two_nodes();
  const Mapped mapped(4 * run_bytes);
  mapped.memory()[5] = std::byte{7};
  if (cpu_placement().size() != 2) std::_Exit(1);
  {
    NodeMemory placed(mapped.memory(), deal_blocks(cpu_placement(), four_runs));
    if (mapped.resident_bytes() != 4 * run_bytes) std::_Exit(2);
    if (mapped.memory()[5] != std::byte{7}) std::_Exit(3);
    NodeMemory moved = std::move(placed);
    for (Bytes at = 0; at < 4 * run_bytes; at += run_bytes / 2)
      if (node_of(mapped.memory().data() + at) < 0) std::_Exit(4);
    if (node_of(mapped.memory().data() - 1) != -1) std::_Exit(5);
    if (node_of(mapped.memory().data() + 4 * run_bytes) != -1) std::_Exit(6);
  }
  if (node_of(mapped.memory().data()) != -1) std::_Exit(7);
  std::atomic<std::uint64_t> sum = 0;
  parallel_ranges(
      1000, 1, [](std::uint64_t begin) { return static_cast<int>(begin % 2); },
      [&](std::uint64_t begin, std::uint64_t) { sum += begin; });
  std::_Exit(sum == 999 * 500 ? 0 : 8);
}

TEST(NodeMemory, of_two_nodes_is_touched_known_kept_and_forgotten) {
  if (available_cpus() < 2) GTEST_SKIP() << "needs two CPUs to bind to";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(check_two_nodes(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace
