// Saves beside the steps: a checkpoint of the states of the call, whatever training did meanwhile, and what
// becomes of failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "tests/support/engine_harness.h"
#include "tests/support/fault_io_engine.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

// What a rank saves with: lanes and a communicator that training does not use.
struct Saver {
  Saver(const EngineRun::Rank& at, const std::shared_ptr<ThreadHub>& hub, const std::string& directory)
      : device(make_cpu_device({.memory_bytes = 4096, .compute_threads = 1})),
        communicator(at.communicator.size() == 1 ? make_single_communicator(*device)
                                                 : make_thread_communicator(hub, *device, at.rank)),
        checkpointer(at.engine, at.io, *communicator, *device, at.options,
                     {.directory = directory,
                      .keep_last = 0,
                      .leads_host = at.rank == 0,
                      .written_by = "test",
                      .model = ""}) {}
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  Checkpointer checkpointer;
};

class BackgroundSaveTest : public ::testing::Test {
 protected:
  EngineRun run_of(int world_size, const Combination& combination, int steps) {
    EngineRun run;
    run.options = with(run.options, combination);
    run.options.swap_block_bytes = 12 << 10;
    run.options.snapshot_buffers = 1;
    run.world_size = world_size;
    run.steps = steps;
    if (combination.uses_nvme())
      run.options.swap_directories = {folder_.path("swap-" + std::to_string(++runs_))};
    return run;
  }

  // Begins a save after each of `steps`, and takes its result before the next one and at the end.
  EngineRunResult run_saving(EngineRun run, const std::vector<std::uint64_t>& steps) {
    const auto hub = make_thread_hub(run.world_size);
    std::vector<std::unique_ptr<Saver>> savers(static_cast<std::size_t>(run.world_size));
    const auto last = static_cast<std::uint64_t>(run.steps);
    run.after_step = [&, hub](const EngineRun::Rank& at, const TrainingState& state) {
      std::unique_ptr<Saver>& saver = savers[static_cast<std::size_t>(at.rank)];
      if (!saver) saver = std::make_unique<Saver>(at, hub, checkpoints());
      const bool due = std::ranges::find(steps, state.iteration) != steps.end();
      const auto saved = saver->checkpointer.result(due || state.iteration == last);
      if (saved && at.rank == 0) saved_.push_back(*saved);
      if (due) saver->checkpointer.begin(state);
      if (state.iteration == last) saver.reset();
    };
    return run_engine(run);
  }

  std::uint64_t loaded_hash(const std::string& path, EngineRun run) {
    run.begin = [&](const EngineRun::Rank& at, const TrainingState&) {
      return load_checkpoint(path, at.engine, at.io, {});
    };
    return run_engine(run).hash;
  }

  std::string checkpoints() const { return folder_.path("checkpoints"); }
  TemporaryFolder folder_;
  std::vector<Checkpointer::Saved> saved_;
  int runs_ = 0;
};

constexpr Combination on_device{0, Tier::device, Tier::device, Tier::device},
    sharded_host{1, Tier::host, Tier::device, Tier::device}, all_nvme{3, Tier::nvme, Tier::nvme, Tier::nvme};

TEST_F(BackgroundSaveTest, holds_the_states_of_the_call_and_training_has_the_same_bits) {
  for (const Combination& combination : {on_device, sharded_host, all_nvme})
    for (const int world_size : {1, 3}) {
      std::filesystem::remove_all(checkpoints());
      saved_.clear();
      std::map<std::uint64_t, std::uint64_t> expected;
      for (const int steps : {1, 3, 6}) {
        EngineRun alone = run_of(world_size, combination, steps);
        alone.options.snapshot_buffers = 0;
        expected[static_cast<std::uint64_t>(steps)] = run_engine(alone).hash;
      }
      EXPECT_EQ(run_saving(run_of(world_size, combination, 6), {1, 3}).hash, expected[6])
          << describe(combination);
      ASSERT_EQ(saved_.size(), 2u) << describe(combination) << " at " << world_size;
      for (const Checkpointer::Saved& saved : saved_)
        EXPECT_EQ(loaded_hash(saved.path, run_of(2, sharded_host, 0)), expected[saved.step])
            << describe(combination) << " at " << world_size << " step " << saved.step;
    }
}

TEST_F(BackgroundSaveTest, that_ends_with_its_checkpointer_is_complete) {
  const EngineRunResult whole = run_saving(run_of(2, all_nvme, 3), {3});
  ASSERT_EQ(find_checkpoints(checkpoints()).size(), 1u);
  EXPECT_EQ(loaded_hash(find_checkpoints(checkpoints())[0].path, run_of(1, on_device, 0)), whole.hash);
}

TEST_F(BackgroundSaveTest, that_fails_is_told_once_and_neither_training_nor_the_next_one_suffers) {
  for (const Combination& combination : {on_device, sharded_host, all_nvme}) {
    std::filesystem::remove_all(checkpoints());
    EngineRun run = run_of(1, combination, 6);
    const std::uint64_t expected = run_engine(run).hash;
    auto plan = std::make_shared<FaultPlan>();
    run.make_io = [&] { return make_fault_engine(make_thread_engine({}), plan); };
    std::unique_ptr<Saver> saver;
    std::vector<std::string> failures;
    std::vector<std::uint64_t> complete;
    run.after_step = [&](const EngineRun::Rank& at, const TrainingState& state) {
      if (!saver) saver = std::make_unique<Saver>(at, nullptr, checkpoints());
      try {
        if (const auto saved = saver->checkpointer.result(state.iteration % 2 == 0))
          complete.push_back(saved->step);
      } catch (const Error& error) {
        failures.emplace_back(error.what());
        EXPECT_FALSE(saver->checkpointer.saving());
      }
      if (state.iteration == 6) return saver.reset();
      if (state.iteration == 3)
        plan->add({.direction = IoDirection::write, .path_suffix = ".safetensors", .code = ENOSPC});
      else
        plan->clear();
      if (state.iteration % 2 == 1) saver->checkpointer.begin(state);
    };
    EXPECT_EQ(run_engine(run).hash, expected) << describe(combination);
    ASSERT_EQ(failures.size(), 1u) << describe(combination);
    EXPECT_THAT(failures[0], HasSubstr("No space left")) << describe(combination);
    EXPECT_EQ(complete, (std::vector<std::uint64_t>{1, 5})) << describe(combination);
    EXPECT_EQ(find_checkpoints(checkpoints()).size(), 2u) << describe(combination);
  }
}

}  // namespace
}  // namespace headrace::testing
