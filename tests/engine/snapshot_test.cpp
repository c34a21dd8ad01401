// Snapshots of an engine's states that are read while it goes on: what they hold, whatever the timing, the
// tiers and the number of buffers, and that they change nothing.
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "tests/support/engine_harness.h"
#include "tests/support/snapshot_reading.h"

namespace headrace::testing {
namespace {

using std::chrono::microseconds;

EngineRun run_of(const Combination& combination, int world_size, std::uint32_t buffers,
                 const TemporaryFolder& folder) {
  EngineRun run;
  run.options = with(run.options, combination);
  run.options.swap_block_bytes = 12 << 10;
  run.options.snapshot_buffers = buffers;
  if (combination.uses_nvme()) run.options.swap_directories = {folder.path()};
  run.world_size = world_size;
  run.steps = 5;
  // A unit without a gradient is not updated, and read all the same.
  run.before_step = [](int, std::uint64_t step, ToyModule& module) {
    module.skipped.assign(module.specs.size(), false);
    if (step == 2) module.skipped[1] = true;
  };
  return run;
}

void expect_states_of_the_moment(EngineRun run, std::uint64_t at, microseconds pause,
                                 const std::string& what) {
  EngineRun alone = run;
  alone.options.snapshot_buffers = 0;
  const std::uint64_t expected = run_engine(alone).hash;
  std::vector<SnapshotReading> ranks(static_cast<std::size_t>(run.world_size));
  run.after_step = [&](const EngineRun::Rank& rank, const TrainingState& state) {
    SnapshotReading& reading = ranks[static_cast<std::size_t>(rank.rank)];
    if (state.iteration == at) reading.begin(rank.engine, pause);
    if (state.iteration == 5) reading.end(rank.engine);
  };
  EXPECT_EQ(run_engine(run).hash, expected) << what;
  for (const SnapshotReading& reading : ranks) {
    EXPECT_FALSE(reading.expected.empty() && run.world_size == 1) << what;
    EXPECT_TRUE(reading.found == reading.expected) << what;
  }
}

class SnapshotTest : public ::testing::TestWithParam<int> {};

TEST_P(SnapshotTest, holds_the_states_of_its_moment_whatever_is_updated_meanwhile) {
  std::uint32_t turn = 0;
  for (const Combination& combination : pairwise_combinations(static_cast<std::uint32_t>(GetParam()))) {
    ++turn;
    const TemporaryFolder folder;
    EngineRun run = run_of(combination, GetParam(), turn % 3 == 0 ? 1 : turn % 3 == 1 ? 2 : 7, folder);
    run.options.swap_cache_bytes = turn % 2 == 0 ? 40'000 : 0;
    if (turn % 4 == 3) run.options.durability = Durability::none;
    expect_states_of_the_moment(run, 1 + turn % 2, microseconds(turn % 3 == 2 ? 0 : 300),
                                describe(combination));
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, SnapshotTest, ::testing::Values(1, 2, 3));

TEST(Snapshot, of_parameters_that_are_the_master_holds_them_too) {
  using enum Tier;
  for (const Combination& combination : {Combination{0, device, device, device}, {3, host, host, host}})
    for (const MomentDType moments : {MomentDType::bf16, MomentDType::int8}) {
      const TemporaryFolder folder;
      EngineRun run = run_of(combination, 1, 2, folder);
      run.options.master_dtype = MasterDType::none;
      run.options.moment_dtype = moments;
      expect_states_of_the_moment(run, 2, microseconds(200), describe(combination));
    }
}

const Combination placements[] = {{0, Tier::device, Tier::device, Tier::device},
                                  {2, Tier::host, Tier::host, Tier::device},
                                  {3, Tier::nvme, Tier::nvme, Tier::nvme}};

TEST(Snapshot, that_is_given_up_holds_up_no_update_and_another_one_can_be_taken) {
  for (const Combination& combination : placements) {
    const TemporaryFolder folder;
    EngineRun run = run_of(combination, 1, 1, folder);
    const std::uint64_t expected = run_engine(run).hash;
    SnapshotReading later;
    std::future<void> failing;
    std::unique_ptr<StateSnapshot> snapshot;
    run.after_step = [&](const EngineRun::Rank& rank, const TrainingState& state) {
      if (state.iteration == 1) {  // its reader fails in the middle
        snapshot = rank.engine.snapshot();
        failing = std::async(std::launch::async, [&] {
          int pieces = 0;
          snapshot->visit([&](const StatePiece&, const StateArrays&, std::uint64_t) {
            if (++pieces == 3) throw Error("a full disk");
          });
        });
      } else if (state.iteration == 2) {  // never read
        EXPECT_THROW(failing.get(), Error) << describe(combination);
        snapshot.reset();
        snapshot = rank.engine.snapshot();
        snapshot->give_up();
      } else if (state.iteration == 3) {
        EXPECT_THROW(snapshot->visit({}), Error);
        snapshot.reset();
        later.begin(rank.engine, microseconds(100));
      } else if (state.iteration == 5) {
        later.end(rank.engine);
      }
    };
    EXPECT_EQ(run_engine(run).hash, expected) << describe(combination);
    EXPECT_TRUE(later.found == later.expected) << describe(combination);
  }
}

TEST(Snapshot, that_nobody_reads_in_time_is_told_apart_by_the_wait_of_the_update) {
  for (const Combination& combination : placements) {
    const TemporaryFolder folder;
    EngineRun run = run_of(combination, 1, 1, folder);
    SnapshotReading reading;
    double waited = 0;
    run.after_step = [&](const EngineRun::Rank& rank, const TrainingState& state) {
      if (state.iteration == 1) reading.begin(rank.engine, microseconds(2000));
      if (state.iteration != 2) return;
      reading.end(rank.engine);
      waited = reading.snapshot->owner_waited_seconds();
    };
    run_engine(run);
    EXPECT_GT(waited, 0.001) << describe(combination);
    EXPECT_TRUE(reading.found == reading.expected) << describe(combination);
  }
}

}  // namespace
}  // namespace headrace::testing
