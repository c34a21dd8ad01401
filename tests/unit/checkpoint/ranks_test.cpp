// Ranks that disagree, and ranks whose hosts do not share a folder.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <mutex>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "tests/support/engine_harness.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RanksOfCheckpoints : public ::testing::Test {
 protected:
  static EngineRun run_of(int world_size, int steps) {
    EngineRun run;
    run.options = with(run.options, {1, Tier::host, Tier::device, Tier::device});
    run.options.dtype = DType::bf16;
    run.world_size = world_size;
    run.steps = steps;
    return run;
  }
  static Checkpointer::Saved save(const EngineRun::Rank& at, const TrainingState& state,
                                  const std::string& directory, bool leads_host) {
    return Checkpointer(at.engine, at.io, at.communicator, at.device, at.options,
                        {.directory = directory,
                         .keep_last = 1,
                         .leads_host = leads_host,
                         .written_by = "test",
                         .model = ""})
        .save(state);
  }

  TemporaryFolder folder_;
};

// C10
TEST_F(RanksOfCheckpoints, of_different_steps_are_refused_by_all_with_both_before_anything_is_written) {
  std::array<std::string, 3> said;
  EngineRun run = run_of(3, 1);
  run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
    TrainingState other = state;
    if (at.rank == 2) other.iteration = 9;
    try {
      save(at, other, folder_.path("checkpoints"), at.rank == 0);
    } catch (const UsageError& error) {
      said.at(static_cast<std::size_t>(at.rank)) = error.what();
    }
  };
  run_engine(run);
  for (const std::string& text : said)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 2 saves step 9"), HasSubstr("rank 0 step 1")));
  EXPECT_THAT(folder_.names("checkpoints"), ElementsAre("lock"));
}

// C10
TEST_F(RanksOfCheckpoints, without_a_folder_are_refused_by_all) {
  EngineRun run = run_of(2, 1);
  int refused = 0;
  std::mutex mutex;
  run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
    try {
      save(at, state, "", at.rank == 0);
    } catch (const Error&) {
      const std::lock_guard lock(mutex);
      ++refused;
    }
  };
  run_engine(run);
  EXPECT_EQ(refused, 2);
}

// C17: ranks 0 and 1 see one folder, ranks 2 and 3 another.
class NodeLocalFolders : public RanksOfCheckpoints {
 protected:
  std::string folder_of(int rank) const { return folder_.path(rank < 2 ? "host-a/runs" : "host-b/runs"); }
  std::uint64_t save_on_both(int steps) const {
    EngineRun run = run_of(4, steps);
    run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
      save(at, state, folder_of(at.rank), at.rank % 2 == 0);
    };
    return run_engine(run).hash;
  }
  EngineRunResult load(int world_size) const {
    EngineRun run = run_of(world_size, 0);
    run.begin = [&](const EngineRun::Rank& at, const TrainingState&) {
      return load_checkpoint(find_checkpoints(folder_of(at.rank)).back().path, at.engine, at.io, {});
    };
    return run_engine(run);
  }
};

TEST_F(NodeLocalFolders, hold_what_their_ranks_wrote_and_the_same_ranks_load_it) {
  save_on_both(1);
  const std::uint64_t hash = save_on_both(2);
  for (const auto& [host, first] : {std::pair("host-a", 0), std::pair("host-b", 2)}) {
    const std::string runs = std::string(host) + "/runs";
    EXPECT_THAT(folder_.names(runs + "/" + checkpoint_name(2)),
                ElementsAre("manifest.json", fmt::format("rank-0000{}-of-00004.safetensors", first),
                            fmt::format("rank-0000{}-of-00004.safetensors", first + 1)));
    EXPECT_FALSE(files::folder_exists(folder_.path(runs + "/" + checkpoint_name(1)))) << "an old one is kept";
  }
  EXPECT_EQ(load(4).hash, hash);
}

TEST_F(NodeLocalFolders, tell_other_ranks_which_files_they_lack) {
  const std::uint64_t hash = save_on_both(1);
  try {
    load(1);
    ADD_FAILURE() << "half of the files were enough";
  } catch (const CorruptData& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank-00002-of-00004.safetensors is missing"),
                                    HasSubstr("rank-00003-of-00004.safetensors is missing"),
                                    Not(HasSubstr("rank-00000")), Not(HasSubstr("rank-00001"))));
  }
  const std::string step = "/runs/" + checkpoint_name(1);
  for (const std::string& name : folder_.names("host-b" + step))
    if (name.starts_with("rank"))
      std::filesystem::copy(folder_.path("host-b" + step + "/" + name),
                            folder_.path("host-a" + step + "/" + name));
  EXPECT_EQ(load(1).hash, hash);
}

}  // namespace
}  // namespace headrace::testing
