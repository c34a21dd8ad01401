// Runs of a store are recorded call by call. For every moment of a run, disks are made as the loss of power
// may leave them there (LossyDisk): everything unflushed lost, kept, each change alone, and random mixtures
// with writes torn at 512 bytes. On each the last committed step must be found (DiskCheck).
#include <gmock/gmock.h>

#include <iostream>

#include "tests/unit/swap/power_loss_replay.h"
#include "tests/unit/swap/power_loss_scenarios.h"

namespace headrace::testing {
namespace {

class PowerLossTest : public ::testing::TestWithParam<Scenario> {
 protected:
  std::unique_ptr<IoEngine> engine_ = make_thread_engine({});
};

TEST_P(PowerLossTest, at_any_moment_leaves_the_last_committed_step) {
  RecordedRun run(*engine_, GetParam().shape);
  GetParam().run(run);
  run.end();
  DiskCheck check(run, *engine_);
  const bool one_path = GetParam().shape.paths == 1;
  const Effort effort = one_path ? Effort{.random_ones = 100, .at_most = 1000}
                                 : Effort{.random_ones = 10, .at_most = 6, .one_order = true};
  for (unsigned seed = 1; check.disks() < GetParam().disks; ++seed)
    ASSERT_EQ(replay(run, check, effort, seed), "") << "after " << check.disks() << " disks";
  std::cout << check.disks() << " different disks\n";
}

TEST_P(PowerLossTest, is_tried_on_recordings_that_hold_every_change) {
  RecordedRun run(*engine_, GetParam().shape);
  GetParam().run(run);
  LossyDisk disk = run.start();
  for (const Moment& moment : run.recording()) RecordedRun::apply(moment, disk);
  const LossyDisk::Image recorded = disk.current(), there = LossyDisk(run.folder()).current();
  EXPECT_EQ(recorded.size(), there.size());
  for (const auto& [path, contents] : there)
    if (!path.ends_with("/lock")) {  // what is in it is not recorded
      EXPECT_TRUE(recorded.contains(path) && recorded.at(path) == contents) << path;
    }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, PowerLossTest, ::testing::ValuesIn(power_loss_scenarios),
                         [](const ::testing::TestParamInfo<Scenario>& scenario) {
                           return name_of(scenario.param);
                         });

TEST(PowerLoss, is_tried_on_ten_thousand_disks) {
  std::size_t disks = 0;
  for (const Scenario& scenario : power_loss_scenarios) disks += scenario.disks;
  EXPECT_GE(disks, 10000u);
}

}  // namespace
}  // namespace headrace::testing
