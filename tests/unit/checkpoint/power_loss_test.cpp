// Saves are recorded call by call. For every moment, disks are made as the loss of power may leave them there
// (LossyDisk), and on each the newest checkpoint whose save had returned must load, or the one being saved.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "tests/support/engine_harness.h"
#include "tests/support/power_loss/mixtures.h"

namespace headrace::testing {
namespace {

// Where flushing costs nothing: what is flushed is seen, not timed.
std::filesystem::path memory_folder() {
  return std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
}

EngineRun run_of(int world_size, int steps) {
  EngineRun run;
  run.options = with(run.options, {1, Tier::host, Tier::device, Tier::device});
  run.options.dtype = DType::bf16;
  run.options.host_memory_bytes = 64 << 20;
  run.device.memory_bytes = 4 << 20;
  run.world_size = world_size;
  run.steps = steps;
  run.units.resize(2);
  return run;
}

// What may be found, by the hash of its states.
struct Allowed {
  std::optional<std::uint64_t> reported;  // its save had returned
  std::optional<std::uint64_t> under_way;
};
struct Moment {
  FileEvent event;
  bool failed = false;
  Allowed allowed;
};

class RecordedSaves {
 public:
  // A run of so many steps that saves at its end.
  void save(int world_size, int steps, std::uint64_t keep_last, const SyscallHook::Before& fault = {}) {
    EngineRun run = run_of(world_size, steps);
    allowed_.under_way = run_engine(run).hash;
    run.finish = [&](const EngineRun::Rank& at, const TrainingState& state) {
      Checkpointer(at.engine, at.io, at.communicator, at.device, at.options,
                   {.directory = directory(),
                    .keep_last = keep_last,
                    .leads_host = at.rank == 0,
                    .written_by = "test",
                    .model = ""})
          .save(state);
    };
    const SyscallHook hook(folder_.path(), [&](const FileEvent& event) {
      const int code = fault ? fault(event) : 0;
      moments_.push_back({event, code != 0, allowed_});
      return code;
    });
    if (fault) {
      EXPECT_THROW(run_engine(run), Error);
    } else {
      run_engine(run);
      allowed_.reported = allowed_.under_way;
    }
  }
  // The moment after the last call, too.
  std::vector<Moment> end() {
    moments_.push_back({{}, true, {.reported = allowed_.reported, .under_way = {}}});
    return moments_;
  }
  std::string root() const { return folder_.path(); }
  std::string directory() const { return folder_.path("runs/checkpoints"); }
  LossyDisk start() const { return start_; }

 private:
  TemporaryFolder folder_{memory_folder()};
  LossyDisk start_{folder_.path()};
  std::vector<Moment> moments_;
  Allowed allowed_;
};

// Loads what a disk holds, each different disk once.
class DiskCheck {
 public:
  // Empty when the disk is as it may be.
  std::string operator()(const LossyDisk::Image& image, const Allowed& allowed) {
    if (!seen_.insert(key_of(image, allowed)).second) return "";
    write_image(image, folder_.path("disk"));
    const std::string directory = folder_.path("disk/runs/checkpoints");
    const std::vector<FoundCheckpoint> found = find_checkpoints(directory);
    if (found.empty()) return allowed.reported ? "the checkpoint that was reported is gone" : "";
    std::uint64_t hash = 0;
    for (const FoundCheckpoint& one : found) {
      const std::string wrong = hash_of(one.path, hash);
      if (!wrong.empty()) return fmt::format("{} is visible, and {}", one.path, wrong);
    }
    if (hash != allowed.reported && hash != allowed.under_way)
      return fmt::format("{}, the newest, is another one", found.back().path);
    return wrong_latest(directory, found, allowed);
  }
  std::size_t disks() const { return seen_.size(); }

 private:
  static std::string hash_of(const std::string& path, std::uint64_t& hash) {
    try {
      EngineRun run = run_of(1, 0);
      run.begin = [&](const EngineRun::Rank& at, const TrainingState&) {
        return load_checkpoint(path, at.engine, at.io, {});
      };
      hash = run_engine(run).hash;
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  // `latest` is written last: until then it names the one before.
  static std::string wrong_latest(const std::string& directory, const std::vector<FoundCheckpoint>& found,
                                  const Allowed& allowed) {
    const std::string path = files::join(directory, "latest");
    if (!files::file_exists(path)) return allowed.reported ? "latest is gone" : "";
    const std::vector<std::byte> bytes = files::read_file(path);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    for (const FoundCheckpoint& one : found)
      if (text == checkpoint_name(one.step) + "\n") return "";
    return fmt::format("latest names '{}', which is not there", text);
  }
  static std::size_t key_of(const LossyDisk::Image& image, const Allowed& allowed) {
    std::size_t key = std::hash<std::string>{}(
        fmt::format("{} {}", allowed.reported.value_or(0), allowed.under_way.value_or(0)));
    for (const auto& [path, contents] : image) {
      key = key * 0x9E3779B97F4A7C15 + std::hash<std::string>{}(path);
      key = key * 0x9E3779B97F4A7C15 + std::hash<std::string>{}(contents);
    }
    return key;
  }

  TemporaryFolder folder_{memory_folder()};
  std::unordered_set<std::size_t> seen_;
};

// Tries the disks before each call. Returns the first that is not as it may be.
std::string replay(RecordedSaves& saves, DiskCheck& check) {
  constexpr Effort effort{.random_ones = 8, .at_most = 24};
  LossyDisk disk = saves.start();
  std::mt19937 random(1);
  const std::vector<Moment> moments = saves.end();
  for (std::size_t call = 0; call < moments.size(); ++call) {
    for (const auto names : {LossyDisk::Names::independent, LossyDisk::Names::in_order})
      for (const std::vector<Fate>& fates : some_mixtures(disk.unflushed(), effort, random))
        if (const std::string wrong = check(disk.image(fates, random, names), moments[call].allowed);
            !wrong.empty())
          return fmt::format("before call {} of {}, on {}: {}", call, moments.size(),
                             moments[call].event.path, wrong);
    if (call + 1 == moments.size()) break;
    if (moments[call].failed)
      disk.apply_failed(moments[call].event);
    else
      disk.apply(moments[call].event);
  }
  std::cout << check.disks() << " different disks\n";
  return "";
}

class PowerLossOfSaves : public ::testing::Test {
 protected:
  RecordedSaves saves_;
  DiskCheck check_;
};

TEST_F(PowerLossOfSaves, leaves_the_newest_that_was_reported_and_every_visible_one_whole) {
  for (const int steps : {1, 2, 3}) saves_.save(1, steps, 2);
  EXPECT_EQ(replay(saves_, check_), "");
  EXPECT_GT(check_.disks(), 100u);
}

TEST_F(PowerLossOfSaves, of_two_ranks_leaves_the_files_of_both) {
  for (const int steps : {1, 2}) saves_.save(2, steps, 1);
  EXPECT_EQ(replay(saves_, check_), "");
}

TEST_F(PowerLossOfSaves, of_a_step_that_is_saved_again_leaves_the_old_one_or_the_new) {
  saves_.save(2, 2, 0);
  saves_.save(1, 2, 0);
  EXPECT_EQ(replay(saves_, check_), "");
}

TEST_F(PowerLossOfSaves, after_one_that_failed_leaves_the_one_before_it) {
  saves_.save(1, 1, 1);
  saves_.save(1, 2, 1, failing(FileCall::sync, ".safetensors", EIO));
  saves_.save(1, 2, 1, failing(FileCall::rename, ".partial", EIO));
  saves_.save(1, 3, 1);
  EXPECT_EQ(replay(saves_, check_), "");
}

TEST_F(PowerLossOfSaves, is_tried_on_recordings_that_hold_every_change) {
  for (const int steps : {1, 2, 2}) saves_.save(2, steps, 1);
  LossyDisk disk = saves_.start();
  std::vector<Moment> moments = saves_.end();
  moments.pop_back();
  for (const Moment& moment : moments) disk.apply(moment.event);
  EXPECT_TRUE(disk.current() == LossyDisk(saves_.root()).current());
}

}  // namespace
}  // namespace headrace::testing
