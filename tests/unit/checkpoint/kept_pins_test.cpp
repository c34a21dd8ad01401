// Which pinned versions a swap store keeps: none that a checkpoint may need is released, and none leaks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "headrace/checkpoint.h"
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
using ::testing::SizeIs;

class KeptPinsTest : public ::testing::Test {
 protected:
  EngineRun run_of(int steps, int world_size = 1, int paths = 1) {
    EngineRun run;
    run.options = with(run.options, {1, Tier::nvme, Tier::device, Tier::device});
    run.options.dtype = DType::bf16;
    run.options.host_memory_bytes = 64 << 20;
    run.options.swap_block_bytes = 96 << 10;
    run.options.swap_pins = 3;
    run.options.swap_parity = paths > 1 ? 1 : 0;
    for (int path = 0; path < paths; ++path)
      run.options.swap_directories.push_back(folder_.path(fmt::format("swap-{}", path)));
    run.world_size = world_size;
    run.steps = steps;
    return run;
  }
  EngineRun further(int steps, int world_size = 1) {
    EngineRun run = run_of(steps, world_size);
    run.begin = [](const EngineRun::Rank& at, const TrainingState&) { return at.engine.resume(); };
    return run;
  }

  static Checkpointer::Saved save_to(const std::string& directory, const EngineRun::Rank& at,
                                     const EngineOptions& options, const TrainingState& state,
                                     bool leads_host) {
    return Checkpointer(at.engine, at.io, at.communicator, at.device, options,
                        {.directory = directory,
                         .keep_last = 2,
                         .leads_host = leads_host,
                         .written_by = "test",
                         .model = "",
                         .pin = true})
        .save(state);
  }
  // Its last step; the path of the checkpoint.
  std::string save(EngineRun run, const std::string& directory = "checkpoints") {
    std::string path;
    run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
      const Checkpointer::Saved saved = save_to(folder_.path(directory), at, at.options, state, at.rank == 0);
      EXPECT_EQ(saved.problem, "");
      if (at.rank == 0) path = saved.path;
    };
    run_engine(run);
    return path;
  }

  std::vector<std::string> pins(int rank = 0) const {
    std::vector<std::string> names;
    const std::string store = folder_.path(fmt::format("swap-0/rank-{:05}", rank));
    for (const SwapPin& pin : SwapStore::describe(SwapStore::directories_of(store)).pins)
      names.push_back(pin.name);
    return names;
  }
  static std::string pin_of(const std::string& checkpoint) { return read_checkpoint_facts(checkpoint).pin; }

  TemporaryFolder folder_;
  std::unique_ptr<IoEngine> io_ = make_thread_engine({});
};

TEST_F(KeptPinsTest, a_manifest_that_could_not_be_read_again_is_not_published) {
  EngineRun run = run_of(1);
  std::string message;
  run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
    EngineOptions without_folders = at.options;
    without_folders.swap_directories.clear();
    try {
      save_to(folder_.path("checkpoints"), at, without_folders, state, true);
    } catch (const Error& error) {
      message = error.what();
    }
  };
  run_engine(run);
  EXPECT_THAT(message, AllOf(HasSubstr("could not be read again"), HasSubstr("has no folder")));
  EXPECT_THAT(find_checkpoints(folder_.path("checkpoints")), IsEmpty());
  EXPECT_THAT(pins(), IsEmpty());
}

TEST_F(KeptPinsTest, all_are_kept_while_a_checkpoint_cannot_be_read) {
  const std::string first = save(run_of(1)), manifest = first + "/manifest.json";
  const std::string first_pin = pin_of(first);
  fs::rename(manifest, folder_.path("kept"));
  fs::create_symlink("manifest.json", manifest);  // ELOOP
  std::string second = save(further(1));
  EXPECT_THAT(pins(), ElementsAre(first_pin, pin_of(second)));

  fs::remove(manifest);
  fs::copy_file(folder_.path("kept"), manifest);
  std::ofstream(manifest, std::ios::app) << "damage";
  fs::remove_all(second);
  const std::string second_pin = pins().back();
  const std::string third = save(further(1));
  EXPECT_THAT(pins(), ElementsAre(first_pin, second_pin, pin_of(third)));

  fs::rename(folder_.path("kept"), manifest);
  second = save(further(1));
  EXPECT_THAT(pins(), ElementsAre(pin_of(third), pin_of(second))) << "what was read again is released";
}

TEST_F(KeptPinsTest, a_folder_that_cannot_be_listed_is_no_folder_without_checkpoints) {
  fs::create_symlink("loop", folder_.path("loop"));
  EXPECT_THROW(find_checkpoints(folder_.path("loop")), IoError);
  EXPECT_THAT(find_checkpoints(folder_.path("missing")), IsEmpty());
}

TEST_F(KeptPinsTest, a_run_whose_folder_is_not_there_is_refused_and_goes_on_once_it_is) {
  save(run_of(1));
  save(further(1));
  const std::vector<std::string> before = pins();
  fs::rename(folder_.path("checkpoints"), folder_.path("moved"));
  std::string message;
  try {
    save(further(1));
  } catch (const UsageError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, AllOf(HasSubstr("there is no checkpoint in"), HasSubstr("keeps 2 pinned versions"),
                             HasSubstr("Mount"), HasSubstr("headrace checkpoint release")));
  EXPECT_EQ(pins(), before);
  const std::string third = save(further(1), "moved");
  EXPECT_THAT(pins(), ElementsAre(before[1], pin_of(third)));
}

TEST_F(KeptPinsTest, a_step_that_is_saved_again_where_the_folder_was_moved_to_releases_what_it_replaces) {
  const std::string first_pin = pin_of(save(run_of(1)));
  save(further(1));
  fs::rename(folder_.path("checkpoints"), folder_.path("moved"));
  EngineRun back = run_of(1);
  back.begin = [&](const EngineRun::Rank& at, const TrainingState&) { return at.engine.go_back(first_pin); };
  const std::string again = save(back, "moved");
  EXPECT_THAT(again, HasSubstr(checkpoint_name(2)));
  EXPECT_THAT(pins(), ElementsAre(first_pin, pin_of(again)));
}

TEST_F(KeptPinsTest, ranks_whose_folders_are_their_own_give_a_version_the_same_name) {
  for (const bool goes_on : {false, true}) {
    EngineRun run = goes_on ? further(1, 2) : run_of(1, 2);
    std::array<std::string, 2> paths;
    run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
      const auto rank = static_cast<std::size_t>(at.rank);
      const std::string directory = folder_.path(fmt::format("host-{}", rank));
      paths.at(rank) = save_to(directory, at, at.options, state, true).path;
    };
    run_engine(run);
    EXPECT_EQ(pin_of(paths[0]), pin_of(paths[1]));
    EXPECT_EQ(pins(0), pins(1));
    EXPECT_THAT(pins(0), SizeIs(goes_on ? 2 : 1));
  }
}

TEST_F(KeptPinsTest, a_store_with_parity_gives_back_a_version_too) {
  EngineRun run = run_of(1, 1, 3);
  const std::string pin = pin_of(save(run));
  EXPECT_EQ(release_pin(run.options.swap_directories, pin, *io_).stores, 1u);
  EXPECT_THAT(pins(), IsEmpty());
}

}  // namespace
}  // namespace headrace::testing
