// What the host's update is given in a step of the engine: regions of several blocks, the size of the whole
// update, and pieces that run on the node where their states lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include "cpu_adam/parallel_parts.h"
#include "headrace/cpu_pool.h"
#include "headrace/numa_memory.h"
#include "src/zero/update_override.h"
#include "tests/support/engine_harness.h"
#include "tests/support/two_nodes.h"

namespace headrace::testing {
namespace {

// One engine of one rank, its host's update watched.
class WatchedEngine {
 public:
  WatchedEngine(const EngineOptions& options, std::vector<UnitSpec> units, UpdateOverride::Update update)
      : io_(options.swap_directories.empty() ? nullptr : make_thread_engine({})),
        engine_(*device_, *kernels_, *communicator_, io_.get(), options) {
    UpdateOverride::set(engine_, std::move(update));
    module_.specs = std::move(units);
    module_.dtype = options.dtype;
    module_.compute = &host_toy_compute();
    module_.attach(engine_);
    engine_.initialise();
  }
  void step() {
    module_.run(engine_, *device_, 0, state_.iteration++);
    engine_.step(1e-3, state_);
  }
  void step_without(std::size_t unit) {
    module_.silent[unit] = true;
    step();
    module_.silent[unit] = false;
  }

 private:
  std::unique_ptr<Device> device_ = make_cpu_device({.memory_bytes = 64 << 20, .compute_threads = 1});
  std::unique_ptr<DeviceKernels> kernels_ = make_cpu_kernels(*device_);
  std::unique_ptr<Communicator> communicator_ = make_single_communicator(*device_);
  std::unique_ptr<IoEngine> io_;
  Engine engine_;
  ToyModule module_;
  TrainingState state_;
};

EngineOptions options_of(const Combination& combination, const TemporaryFolder& folder) {
  EngineOptions options = with({}, combination);
  options.swap_block_bytes = 12 * 4096;
  if (combination.uses_nvme()) options.swap_directories = {folder.path() + "/store"};
  return options;
}

std::vector<UnitSpec> units_of_blocks(std::int64_t blocks) {
  return {{"a", {{.name = "a", .shape = {4096 * (blocks - 2)}, .initial_std = 0.5f}}},
          {"b", {{.name = "b", .shape = {4096 + 7}, .weight_decay = false, .initial_std = 0.5f}}}};
}

// A region as its elements, and the size that came with it.
struct Region {
  std::uint64_t numel = 0, update_numel = 0;
};

std::vector<Region> regions_of_a_step(const Combination& combination, std::int64_t blocks,
                                      std::uint32_t region_blocks = ~0u) {
  const TemporaryFolder folder;
  std::vector<Region> regions;
  EngineOptions options = options_of(combination, folder);
  options.update_region_blocks = region_blocks;
  WatchedEngine engine(options, units_of_blocks(blocks),
                       [&](std::span<const GroupSpan> spans, std::span<const OptimizerArguments> groups,
                           std::uint64_t update_numel) {
                         Region& region = regions.emplace_back(0, update_numel);
                         for (const GroupSpan& part : spans) region.numel += part.span.numel;
                         optimizer_update_parallel(spans, groups, update_numel);
                       });
  engine.step();
  return regions;
}

TEST(UpdateRegions, are_one_where_everything_is_in_host_memory) {
  const auto regions = regions_of_a_step({3, Tier::host, Tier::host, Tier::host}, 40);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].numel, 4096u * 39 + 7);
}

TEST(UpdateRegions, hold_several_blocks_where_gradients_or_parameters_are_on_the_device) {
  for (const Combination& combination : {Combination{1, Tier::host, Tier::device, Tier::device},
                                         {2, Tier::host, Tier::host, Tier::device},
                                         {3, Tier::host, Tier::device, Tier::host}}) {
    const auto regions = regions_of_a_step(combination, 40);
    ASSERT_EQ(regions.size(), 4u) << describe(combination);
    EXPECT_EQ(regions[1].numel, 4096u * 10) << describe(combination);
  }
}

TEST(UpdateRegions, hold_no_more_blocks_than_they_are_allowed_where_something_moves) {
  const auto regions = regions_of_a_step({2, Tier::host, Tier::host, Tier::device}, 40, 3);
  ASSERT_EQ(regions.size(), 14u);
  for (std::size_t r = 0; r + 1 < regions.size(); ++r) EXPECT_EQ(regions[r].numel, 4096u * 3) << r;
  EXPECT_EQ(regions_of_a_step({3, Tier::host, Tier::host, Tier::host}, 40, 3).size(), 1u);
}

TEST(UpdateRegions, know_the_size_of_the_whole_update_in_every_tier_of_the_host) {
  for (const Combination& combination : legal_combinations(true)) {
    if (combination.optimizer == Tier::device) continue;
    std::uint64_t numel = 0;
    for (const Region& region : regions_of_a_step(combination, 9)) {
      EXPECT_EQ(region.update_numel, 4096u * 8 + 7) << describe(combination);
      numel += region.numel;
    }
    EXPECT_EQ(numel, 4096u * 8 + 7) << describe(combination);
  }
}

std::vector<UnitSpec> three_units_of_13_blocks() {
  std::vector<UnitSpec> units;
  for (const char* name : {"a", "b", "c"})
    units.push_back({name, {{.name = name, .shape = {4096 * 13}, .initial_std = 0.5f}}});
  return units;
}

// Of 39 blocks regions have 10. The blocks of a unit without a gradient leave no gap.
TEST(UpdateRegions, without_the_blocks_of_a_silent_unit_are_as_large) {
  for (std::size_t unit = 0; unit < 3; ++unit) {
    const TemporaryFolder folder;
    std::vector<std::uint64_t> blocks;
    WatchedEngine engine(
        options_of({1, Tier::host, Tier::device, Tier::device}, folder), three_units_of_13_blocks(),
        [&](std::span<const GroupSpan> spans, std::span<const OptimizerArguments>, std::uint64_t) {
          std::uint64_t numel = 0;
          for (const GroupSpan& part : spans) numel += part.span.numel;
          blocks.push_back(numel / 4096);
        });
    engine.step_without(unit);
    EXPECT_THAT(blocks, ::testing::UnorderedElementsAre(10, 10, 6)) << unit;
  }
}

// Blocks meet in a region that are neighbours in the update alone.
TEST(UpdateRegions, without_the_blocks_of_a_silent_unit_give_the_same_states_on_device_and_host) {
  std::vector<std::uint64_t> hashes;
  for (const Combination& combination : {Combination{1, Tier::device, Tier::device, Tier::device},
                                         {1, Tier::host, Tier::device, Tier::device},
                                         {3, Tier::host, Tier::host, Tier::host}}) {
    EngineRun run;
    run.options = with(run.options, combination);
    run.options.swap_block_bytes = 12 * 4096;
    run.device.link_bytes_per_second = 20e6;
    for (UnitSpec& unit : three_units_of_13_blocks()) run.units.push_back(std::move(unit));
    run.before_step = [](int, std::uint64_t step, ToyModule& module) {
      for (std::size_t unit = 0; unit < 3; ++unit) module.silent[6 + unit] = step % 3 == unit;
    };
    hashes.push_back(run_engine(run).hash);
    EXPECT_EQ(hashes.back(), hashes.front()) << describe(combination);
  }
}

int cpu_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  int found = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) found = found < 0 ? cpu : -2;
  return found;  // -2: not bound
}

// The first piece that each thread of a region takes, and all of the region's nodes. Threads wait for each
// other in their first one, so that none is late.
struct Watch {
  std::mutex mutex;
  std::map<int, int> first;   // CPU -> node of its first piece
  std::map<int, int> pieces;  // by node
  std::atomic<int> arrived = 0;

  void piece(const UpdateSpan& part) {
    {
      const std::lock_guard lock(mutex);
      const int node = node_of(part.state.moments[0].values);
      ++pieces[node];
      if (!first.emplace(cpu_of_this_thread(), node).second) return;
      ++arrived;
    }
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived < 2 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
  }
};

// As in a container without CAP_SYS_NICE: memory then counts as being where it was meant to be. The machine
// may have one node, and would say so.
void refuse_to_tell_where_memory_lies() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    std::_Exit(9);
}

// Exits with the number of the claim that does not hold.
[[noreturn]] void check_homes(const Combination& combination) {
  headrace::testing::pretend_two_nodes();
  refuse_to_tell_where_memory_lies();
  if (cpu_placement().size() != 2) std::_Exit(1);
  const TemporaryFolder folder;
  int regions = 0;
  WatchedEngine engine(
      options_of(combination, folder), units_of_blocks(130),
      [&](std::span<const GroupSpan> spans, std::span<const OptimizerArguments>, std::uint64_t) {
        Watch watch;
        for_each_part(spans, [&](const UpdateSpan& part, std::uint32_t) { watch.piece(part); });
        ++regions;
        for (const NodeThreads& home : cpu_placement())
          if (watch.first[home.cpus.front()] != home.node) std::_Exit(2);
        if (std::abs(watch.pieces[0] - watch.pieces[1]) > 2) std::_Exit(3);
      });
  engine.step();
  engine.step();
  std::_Exit(regions >= 2 ? 0 : 4);
}

TEST(UpdateRegions, of_two_nodes_are_half_on_each_and_pieces_run_on_the_node_of_their_states) {
  if (available_cpus() < 2) GTEST_SKIP() << "needs two CPUs to bind to";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(check_homes({3, Tier::host, Tier::host, Tier::host}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(check_homes({1, Tier::host, Tier::device, Tier::device}), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace::testing
