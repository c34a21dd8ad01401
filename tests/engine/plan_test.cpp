// The plan against reality: peaks of arenas and budgets, and the communicator's counters, measured in a run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "headrace/planner.h"
#include "tests/support/engine_harness.h"

namespace headrace::testing {
namespace {

class PlanAgainstReality : public ::testing::TestWithParam<int> {};

TEST_P(PlanAgainstReality, peaks_of_every_tag_are_the_planned_bytes) {
  for (const Combination& combination : pairwise_combinations(static_cast<std::uint32_t>(GetParam())))
    for (const int accumulation : {1, 3}) {
      const TemporaryFolder folder;
      EngineRun run;
      run.options = with(run.options, combination);
      run.world_size = GetParam();
      run.steps = 2;
      run.options.accumulation = accumulation;
      run.options.dtype = accumulation == 3 ? DType::f16 : DType::bf16;
      run.options.swap_block_bytes = 12 * 8192;
      run.options.swap_cache_bytes = accumulation == 3 ? 200'000 : 0;
      run.options.snapshot_buffers = accumulation == 3 ? 3 : 0;
      if (combination.uses_nvme()) run.options.swap_directories = {folder.path()};
      const RunPeaks peaks(run);
      run_engine(run);
      const MemoryPlan plan = plan_memory(toy_plan_request(run));
      for (std::size_t t = 0; t < memory_tag_count; ++t) {
        const auto tag = static_cast<MemoryTag>(t);
        EXPECT_EQ(plan.device[tag], peaks.device[tag]) << describe(combination) << " device " << name_of(tag);
        EXPECT_EQ(plan.host[tag], peaks.host[tag]) << describe(combination) << " host " << name_of(tag);
      }
    }
}

TEST_P(PlanAgainstReality, a_host_limit_that_only_smaller_regions_fit_is_kept_and_gives_the_same_states) {
  for (const Combination& combination : {Combination{1, Tier::host, Tier::device, Tier::device},
                                         {2, Tier::host, Tier::host, Tier::device},
                                         {3, Tier::host, Tier::device, Tier::host}}) {
    EngineRun run;
    run.options = with(run.options, combination);
    run.world_size = GetParam();
    run.steps = 3;
    run.options.swap_block_bytes = 12 * 4096;
    run.units = {{"a", {{.name = "a", .shape = {4096 * 60 + 5}, .initial_std = 0.5f}}}};
    const std::uint64_t expected = run_engine(run).hash;
    const MemoryPlan largest = plan_memory(toy_plan_request(run));
    ASSERT_GT(largest.update_region_blocks, 2u) << describe(combination);
    run.options.update_region_blocks = 1;
    const MemoryPlan smallest = plan_memory(toy_plan_request(run));
    for (const Bytes limit : {largest.host.total() - 1, smallest.host.total()}) {
      run.options.update_region_blocks = largest.update_region_blocks;
      run.options.host_memory_bytes = limit;
      PlanRequest request = toy_plan_request(run);
      request.host_limit = limit;
      const MemoryPlan plan = plan_memory(request);
      ASSERT_TRUE(plan.fits()) << describe(combination);
      run.options.update_region_blocks = plan.update_region_blocks;
      const RunPeaks peaks(run);
      EXPECT_EQ(run_engine(run).hash, expected) << describe(combination) << " limit " << limit;
      EXPECT_EQ(peaks.host.bytes, plan.host.bytes) << describe(combination) << " limit " << limit;
    }
  }
}

TEST_P(PlanAgainstReality, communicated_bytes_of_a_step_are_the_planned_bytes) {
  for (const Combination& combination : legal_combinations(false))
    for (const std::uint32_t prefetch : {0u, 1u, 3u}) {
      EngineRun run;
      run.options = with(run.options, combination);
      run.world_size = GetParam();
      run.options.prefetch_units = prefetch;
      run.options.retain_adjacent = prefetch == 1;
      run.options.accumulation = prefetch == 3 ? 2 : 1;
      TrafficCounters measured[3];
      std::mutex mutex;
      run.inspect = [&](int, Engine& engine, Device&) {
        const std::lock_guard lock(mutex);
        const TrafficCounters counters = engine.counters().traffic;
        measured[run.steps].all_gather_bytes += counters.all_gather_bytes;
        measured[run.steps].reduce_scatter_bytes += counters.reduce_scatter_bytes;
      };
      for (run.steps = 0; run.steps <= 2; ++run.steps) run_engine(run);
      for (const int step : {1, 2}) {
        const TrafficCounters planned = plan_traffic(toy_plan_request(run), step == 1);
        EXPECT_EQ(measured[step].all_gather_bytes - measured[step - 1].all_gather_bytes,
                  planned.all_gather_bytes)
            << describe(combination) << " step " << step << " prefetch " << prefetch;
        EXPECT_EQ(measured[step].reduce_scatter_bytes - measured[step - 1].reduce_scatter_bytes,
                  planned.reduce_scatter_bytes)
            << describe(combination) << " step " << step;
      }
    }
}

// Cached blocks are written like the others and never read again.
TEST_P(PlanAgainstReality, bytes_to_and_from_nvme_are_the_planned_bytes_with_and_without_a_cache) {
  for (const Bytes cache : {Bytes{0}, Bytes{300'000}, Bytes{1} << 30}) {
    const TemporaryFolder folder;
    EngineRun run;
    run.options = with(run.options, {2, Tier::nvme, Tier::host, Tier::device});
    run.world_size = GetParam();
    run.options.swap_block_bytes = 12 * 8192;
    run.options.swap_cache_bytes = cache;
    run.options.swap_directories = {folder.path()};
    IoCounters measured[4];
    std::mutex mutex;
    run.inspect = [&](int, Engine& engine, Device&) {
      const std::lock_guard lock(mutex);
      measured[run.steps].read_bytes += engine.counters().io.read_bytes;
      measured[run.steps].written_bytes += engine.counters().io.written_bytes;
    };
    for (run.steps = 2; run.steps <= 3; ++run.steps) run_engine(run);
    const IoCounters planned = plan_io(toy_plan_request(run));
    EXPECT_EQ(measured[3].read_bytes - measured[2].read_bytes, planned.read_bytes) << "cache " << cache;
    EXPECT_EQ(measured[3].written_bytes - measured[2].written_bytes, planned.written_bytes)
        << "cache " << cache;
  }
}

// DESIGN section 6: (n+1)P(N-1)/N elements per rank at stages 0-2, 3nP(N-1)/N at stage 3 without retention.
TEST_P(PlanAgainstReality, planned_communication_is_the_formula_of_the_paper) {
  const auto ranks = static_cast<std::uint64_t>(GetParam());
  EngineRun run;
  run.world_size = GetParam();
  run.units = {{"a", {{.name = "a", .shape = {64, 100}}}}, {"b", {{.name = "b", .shape = {64, 333}}}}};
  const std::uint64_t numel = 64 * 433;
  for (const int stage : {0, 1, 2, 3})
    for (const std::uint64_t n : {1u, 3u}) {
      run.options.stage = stage;
      run.options.accumulation = static_cast<int>(n);
      run.options.retain_adjacent = false;
      const TrafficCounters planned = plan_traffic(toy_plan_request(run), false);
      const std::uint64_t elements =
          (planned.all_gather_bytes + planned.reduce_scatter_bytes) / 2;  // bf16, all ranks
      EXPECT_EQ(elements, (stage < 3 ? n + 1 : 3 * n) * numel * (ranks - 1))
          << "stage " << stage << " n " << n;
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PlanAgainstReality, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace headrace::testing
