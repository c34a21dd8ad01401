// Checkpoints that are pinned versions of the ranks' swap stores: read at any cut, gone back to in place,
// copied, and released.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "headrace/checkpoint.h"
#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/pinned_checkpoints.h"
#include "headrace/swap_store.h"
#include "tests/support/engine_harness.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Combination replicated{0, Tier::nvme, Tier::device, Tier::device},
    sharded{1, Tier::nvme, Tier::device, Tier::device}, all_nvme{3, Tier::nvme, Tier::nvme, Tier::nvme},
    on_device{0, Tier::device, Tier::device, Tier::device}, all_host{3, Tier::host, Tier::host, Tier::host};

class PinnedCheckpointTest : public ::testing::Test {
 protected:
  EngineRun run_of(int world_size, const Combination& combination, int steps, const std::string& swap) {
    EngineRun run;
    run.options = with(run.options, combination);
    run.options.dtype = DType::bf16;
    run.options.host_memory_bytes = 64 << 20;
    run.options.swap_block_bytes = 96 << 10;
    run.world_size = world_size;
    run.steps = steps;
    if (combination.uses_nvme()) run.options.swap_directories = {folder_.path(swap)};
    return run;
  }

  CheckpointOptions checkpoint_options(const EngineRun::Rank& at, bool pin) const {
    return {.directory = folder_.path("checkpoints"),
            .keep_last = 2,
            .leads_host = at.rank == 0,
            .written_by = "test",
            .model = "",
            .pin = pin};
  }

  // Pins the last step; the store stays.
  EngineRunResult save(EngineRun run, bool pin = true) {
    if (pin) run.options.swap_pins = 3;
    run.finish = [&, pin](const EngineRun::Rank& at, const TrainingState& state) {
      Checkpointer checkpointer(at.engine, at.io, at.communicator, at.device, at.options,
                                checkpoint_options(at, pin));
      const Checkpointer::Saved saved = checkpointer.save(state);
      if (at.rank == 0) path_ = saved.path;
    };
    return run_engine(run);
  }

  EngineRunResult load(EngineRun run, const std::string& path) {
    run.begin = [&](const EngineRun::Rank& at, const TrainingState& start) {
      return load_checkpoint(path, at.engine, at.io, {.start = start});
    };
    return run_engine(run);
  }

  std::uint64_t hash_by_inspection(const std::string& path) {
    const CheckpointReport report = inspect_checkpoint(path, {.verify = true, .hash = true}, *io_);
    EXPECT_THAT(report.problems, IsEmpty());
    return report.state_hash.value_or(0);
  }

  TemporaryFolder folder_;
  std::unique_ptr<IoEngine> io_ = make_thread_engine({});
  std::string path_;
};

TEST_F(PinnedCheckpointTest, is_read_at_any_world_size_stage_and_tier_and_is_one_small_file) {
  int store = 0;
  for (const int saved_at : {1, 3})
    for (const Combination& from : {replicated, sharded, all_nvme}) {
      fs::remove_all(folder_.path("checkpoints"));
      const EngineRunResult saved = save(run_of(saved_at, from, 2, fmt::format("swap-{}", ++store)));
      SCOPED_TRACE(fmt::format("{} at {}", describe(from), saved_at));
      EXPECT_EQ(hash_by_inspection(path_), saved.hash);
      EXPECT_THAT(folder_.names("checkpoints/" + fs::path(path_).filename().string()),
                  ElementsAre("manifest.json"));
      for (const Combination& to : {on_device, all_host, all_nvme})
        EXPECT_EQ(load(run_of(2, to, 0, fmt::format("other-{}", ++store)), path_).hash, saved.hash);
    }
}

TEST_F(PinnedCheckpointTest, every_format_of_states_is_kept_bit_by_bit) {
  using enum OptimizerKind;
  struct Formats {
    OptimizerKind kind;
    MasterDType master;
    MomentDType moments;
  };
  int store = 0;
  for (const Formats& formats : {Formats{adam, MasterDType::bf16, MomentDType::bf16},
                                 {adam, MasterDType::f32, MomentDType::int8},
                                 {lion, MasterDType::bf16, MomentDType::int8},
                                 {sgd, MasterDType::f32, MomentDType::f32}}) {
    fs::remove_all(folder_.path("checkpoints"));
    const auto with_states = [&](EngineRun run) {
      run.options.optimizer.kind = formats.kind;
      run.options.master_dtype = formats.master;
      run.options.moment_dtype = formats.moments;
      return run;
    };
    const EngineRunResult saved = save(with_states(run_of(2, sharded, 2, fmt::format("swap-{}", ++store))));
    EXPECT_EQ(load(with_states(run_of(3, all_host, 0, "")), path_).hash, saved.hash) << store;
    const std::string copy = folder_.path(fmt::format("copy-{}", store));
    copy_checkpoint(path_, copy, *io_);
    EXPECT_EQ(hash_by_inspection(copy), saved.hash) << store;
  }
}

// A pin a step; the store goes on from each as if nothing had been after it.
TEST_F(PinnedCheckpointTest, is_gone_back_to_in_place_with_the_bits_of_a_run_that_was_never_stopped) {
  for (const Combination& combination : {replicated, sharded, all_nvme}) {
    fs::remove_all(folder_.path("checkpoints"));
    fs::remove_all(folder_.path("swap"));
    const EngineRunResult whole = run_engine(run_of(2, combination, 5, "whole"));
    fs::remove_all(folder_.path("whole"));
    save(run_of(2, combination, 2, "swap"));
    const std::string at_2 = path_, pin = read_checkpoint_facts(at_2).pin;
    EngineRun further = run_of(2, combination, 2, "swap");
    further.begin = [&](const EngineRun::Rank& at, const TrainingState&) { return at.engine.go_back(pin); };
    const EngineRunResult at_4 = save(further);
    EXPECT_NE(path_, at_2);
    EngineRun again = run_of(2, combination, 3, "swap");
    again.begin = further.begin;
    EXPECT_EQ(run_engine(again).hash, whole.hash) << describe(combination);
    EXPECT_EQ(hash_by_inspection(path_), at_4.hash) << "the other one is kept";
  }
}

TEST_F(PinnedCheckpointTest, a_version_that_a_store_no_longer_keeps_is_named_and_nothing_is_changed) {
  const EngineRunResult saved = save(run_of(2, sharded, 2, "swap"));
  const std::string pin = read_checkpoint_facts(path_).pin;
  EXPECT_EQ(release_pin({folder_.path("swap")}, pin, *io_).stores, 2u);
  EXPECT_THROW(release_pin({folder_.path("swap")}, pin, *io_), UsageError);
  EXPECT_THAT(inspect_checkpoint(path_, {}, *io_).problems,
              ElementsAre(HasSubstr("no longer keeps"), HasSubstr("no longer keeps")));
  EngineRun run = run_of(2, sharded, 0, "swap");
  run.begin = [&](const EngineRun::Rank& at, const TrainingState&) { return at.engine.go_back(pin); };
  EXPECT_THROW(run_engine(run), Error);
  run.begin = [&](const EngineRun::Rank& at, const TrainingState&) { return at.engine.resume(); };
  EXPECT_EQ(run_engine(run).hash, saved.hash);
}

TEST_F(PinnedCheckpointTest, replicated_states_are_verified_in_every_store_that_a_rank_would_go_back_to) {
  save(run_of(2, replicated, 2, "swap"));
  EXPECT_THAT(inspect_checkpoint(path_, {.verify = true}, *io_).problems, IsEmpty());
  std::fstream extents(folder_.path("swap/rank-00001/extents.bin"),
                       std::ios::binary | std::ios::in | std::ios::out);
  const auto bytes = static_cast<std::streamoff>(fs::file_size(folder_.path("swap/rank-00001/extents.bin")));
  for (std::streamoff at = 0; at < bytes; at += 4096) extents.seekp(at).put('x').put('y');
  extents.close();
  const CheckpointReport report = inspect_checkpoint(path_, {.verify = true}, *io_);
  EXPECT_THAT(report.problems, ::testing::Contains(HasSubstr("rank-00001")));
  EXPECT_EQ(report.files[0].state, CheckpointFile::State::good);
  EXPECT_EQ(report.files[1].state, CheckpointFile::State::damaged);
}

TEST_F(PinnedCheckpointTest, one_that_no_checkpoint_names_any_more_is_released_by_the_next_save) {
  save(run_of(1, sharded, 2, "swap"));
  fs::remove_all(path_);
  EngineRun run = run_of(1, sharded, 1, "swap");
  run.begin = [&](const EngineRun::Rank& at, const TrainingState&) { return at.engine.resume(); };
  save(run);
  const SwapDescription store = SwapStore::describe({folder_.path("swap/rank-00000")});
  ASSERT_EQ(store.pins.size(), 1u);
  EXPECT_EQ(store.pins.front().name, read_checkpoint_facts(path_).pin);
}

TEST_F(PinnedCheckpointTest, a_version_that_is_released_while_it_is_read_is_told_apart_from_damage) {
  save(run_of(1, sharded, 2, "swap"));
  const auto release_and_go_on = [&] {
    release_pin({folder_.path("swap")}, read_checkpoint_facts(path_).pin, *io_);
    EngineRun further = run_of(1, sharded, 4, "swap");
    further.begin = [](const EngineRun::Rank& at, const TrainingState&) { return at.engine.resume(); };
    run_engine(further);
  };
  EngineRun run = run_of(1, on_device, 0, "");
  run.begin = [&](const EngineRun::Rank& at, const TrainingState& start) {
    return load_checkpoint(path_, at.engine, at.io, {.before_replacing = release_and_go_on, .start = start});
  };
  std::string message;
  try {
    run_engine(run);
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("was removed while it was read"));
}

TEST_F(PinnedCheckpointTest, stores_that_do_not_hold_what_the_manifest_says_are_refused) {
  save(run_of(2, sharded, 1, "swap"));
  const std::string file = path_ + "/manifest.json";
  const auto text = [&] {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const std::string before = text();
  // Rank 1's store in the place of rank 0's.
  fs::rename(folder_.path("swap/rank-00000"), folder_.path("swap/away"));
  EXPECT_THAT(inspect_checkpoint(path_, {}, *io_).problems, ElementsAre(HasSubstr("does not exist")));
  fs::create_directory_symlink(folder_.path("swap/rank-00001"), folder_.path("swap/rank-00000"));
  EXPECT_THAT(inspect_checkpoint(path_, {}, *io_).problems, ElementsAre(HasSubstr("another swap store")));
  EXPECT_EQ(text(), before);
}

TEST_F(PinnedCheckpointTest, a_copy_of_a_checkpoint_of_files_is_the_same_files) {
  const EngineRunResult saved = save(run_of(3, sharded, 2, "swap"), false);
  const std::string copy = folder_.path("copy");
  const CopiedCheckpoint copied = copy_checkpoint(path_, copy, *io_);
  EXPECT_EQ(copied.files, 4u);
  EXPECT_EQ(hash_by_inspection(copy), saved.hash);
  for (const char* name : {"rank-00000-of-00003.safetensors", "rank-00002-of-00003.safetensors"})
    EXPECT_EQ(fs::file_size(fs::path(path_) / name), fs::file_size(fs::path(copy) / name));
  EXPECT_THROW(copy_checkpoint(path_, copy, *io_), UsageError) << "it is not empty";
}

TEST_F(PinnedCheckpointTest, a_copy_among_the_checkpoints_of_a_job_that_saves_there_is_refused) {
  EngineRun run = run_of(1, sharded, 2, "swap");
  run.options.swap_pins = 3;
  run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
    Checkpointer checkpointer(at.engine, at.io, at.communicator, at.device, at.options,
                              checkpoint_options(at, true));
    path_ = checkpointer.save(state).path;
    EXPECT_THROW(copy_checkpoint(path_, folder_.path("checkpoints/step-00000007"), *io_), UsageError);
    EXPECT_EQ(copy_checkpoint(path_, folder_.path("step-00000007"), *io_).files, 2u);
  };
  run_engine(run);
  EXPECT_EQ(copy_checkpoint(path_, folder_.path("checkpoints/step-00000007"), *io_).files, 2u);
}

}  // namespace
}  // namespace headrace::testing
