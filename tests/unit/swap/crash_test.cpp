// A run is recorded call by call; then a disk is rebuilt as a crash after any of the calls may have left it,
// and must hold the last committed step. A killed process loses nothing that the kernel was given; a power
// cut may lose, reorder or tear everything that was not flushed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/unit/swap/store_fixture.h"
#include "tests/unit/swap/syscall_hook.h"

namespace headrace::testing {
namespace {

// What a later open may find at this point of the run.
struct Knowledge {
  std::set<std::uint64_t> newest_steps;  // empty: no store, or no commit in it
  bool may_be_empty = true;              // no commit was acknowledged yet
};

struct Recorded {
  FileEvent event;
  Knowledge before;  // the call
};

// Contents of files and names in one folder, as the disk would have them.
class Disk {
 public:
  void apply(const FileEvent& event) {
    switch (event.call) {
      case FileCall::write:
        write(event.path, event.offset, event.data);
        break;
      case FileCall::truncate:
        file(event.path).resize(event.offset);
        break;
      case FileCall::reserve:
        if (file(event.path).size() < event.offset) file(event.path).resize(event.offset);
        break;
      case FileCall::rename:
        file(event.target) = std::move(file(event.path));
        files_.erase(event.path);
        break;
      case FileCall::remove:
        files_.erase(event.path);
        break;
      case FileCall::sync:
      case FileCall::create:
      case FileCall::make_folder:
      case FileCall::remove_folder:
        break;
    }
  }
  void store(const std::string& directory) const {
    std::filesystem::remove_all(directory);
    std::filesystem::create_directory(directory);
    for (const auto& [path, bytes] : files_) {
      if (path.ends_with("/lock")) continue;
      std::ofstream out(directory + path.substr(path.rfind('/')), std::ios::binary);
      out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }

 private:
  std::string& file(const std::string& path) { return files_[path]; }
  void write(const std::string& path, std::uint64_t offset, const std::vector<std::byte>& data) {
    std::string& bytes = file(path);
    if (bytes.size() < offset + data.size()) bytes.resize(offset + data.size());
    std::transform(data.begin(), data.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset),
                   [](std::byte byte) { return static_cast<char>(byte); });
  }
  std::map<std::string, std::string> files_;
};

// The calls of the run up to `count` that are on the disk after a power cut: all that were flushed, and of
// the others what `random` keeps, writes possibly in part. Flushing the folder makes renames and removals
// durable.
std::vector<FileEvent> surviving(const std::vector<Recorded>& run, std::size_t count,
                                 const std::string& folder, std::mt19937& random, int keep_percent) {
  std::map<std::string, std::size_t> last_sync;
  std::map<std::string, std::string> renamed_to;
  for (std::size_t i = 0; i < count; ++i)
    if (run[i].event.call == FileCall::sync) last_sync[run[i].event.path] = i;
  const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  std::vector<FileEvent> kept;
  for (std::size_t i = 0; i < count; ++i) {
    FileEvent event = run[i].event;
    if (event.call == FileCall::sync) continue;
    const bool names = event.call == FileCall::rename || event.call == FileCall::remove;
    const auto flushed = last_sync.find(names ? folder : event.path);
    const bool safe = flushed != last_sync.end() && flushed->second > i;
    if (!safe && !chance(keep_percent)) continue;
    if (!safe && event.call == FileCall::write && chance(30))
      event.data.resize(random() % (event.data.size() + 1));
    kept.push_back(std::move(event));
  }
  return kept;
}

class CrashTest : public ::testing::Test {
 protected:
  // Two blocks that differ in size, one empty; enough commits of enough metadata that the journal compacts; a
  // step that is rolled back, a step that writes one block only, a step that is gone back on and done again.
  void record() {
    const SyscallHook hook(folder_.path(), [&](const FileEvent& event) {
      run_.push_back({event, knowledge_});
      return 0;
    });
    run_steps();
    run_.push_back({{}, knowledge_});
  }
  void run_steps() {
    const auto store = SwapStore::create(options_, blocks_of({4097, 0, 512}), *engine_);
    for (std::uint64_t step = 1; step <= 19; ++step) {
      if (step == 3) {
        write_blocks(*store, 99);
        store->rollback();
      }
      write_blocks(*store, step, step == 4);
      commit(*store, step);
      if (step == 6 || step == 18) {
        knowledge_.newest_steps = {step - 1, step};
        store->position_at(step - 1);
        knowledge_.newest_steps = {step - 1};
        pending_ = contents_.at(step - 1);
        write_blocks(*store, step);
        commit(*store, step);
      }
      store->release_superseded();
    }
  }

  void write_blocks(SwapStore& store, std::uint64_t step, bool first_only = false) {
    for (std::uint32_t block = 0; block < (first_only ? 1u : 3u); ++block)
      write_block(store, block, pending_[block] = seed_of(step + 100 * run_.size(), block));
  }
  void commit(SwapStore& store, std::uint64_t step) {
    contents_[step] = pending_;
    knowledge_.newest_steps.insert(step);
    attempts_[step].insert(pending_);
    store.commit({step, std::string(5000, static_cast<char>('a' + step))});
    knowledge_.newest_steps = {step};
    knowledge_.may_be_empty = false;
  }

  // Every block holds what one of the attempts at this step wrote.
  bool whole(SwapStore& store, std::uint64_t step) {
    for (const auto& seeds : attempts_.at(step)) {
      bool good = true;
      for (std::uint32_t block = 0; good && block < 3; ++block)
        good = block_holds(store, block, seeds[block]);
      if (good) return true;
    }
    return false;
  }

  enum class OlderStep { must_be_whole, whole_or_refused };
  void check(const Disk& disk, const Knowledge& knowledge, OlderStep older, const std::string& where) {
    const SwapStoreOptions there{{copies_.path("copy")}, Durability::step, "{}"};
    disk.store(there.directories[0]);
    std::unique_ptr<SwapStore> store;
    try {
      store = SwapStore::open(there, *engine_);
    } catch (const UsageError& error) {
      ASSERT_TRUE(knowledge.may_be_empty) << where << ": " << error.what();
      return;
    }
    const std::vector<std::uint64_t> steps = steps_of(*store);
    ASSERT_TRUE(knowledge.newest_steps.contains(steps.back())) << where << ": step " << steps.back();
    ASSERT_EQ(store->commits().back().metadata, std::string(5000, static_cast<char>('a' + steps.back())));
    ASSERT_TRUE(whole(*store, steps.back())) << where << ": step " << steps.back();
    if (steps.size() < 2) return;
    try {
      store->position_at(steps.front());
      ASSERT_TRUE(whole(*store, steps.front())) << where << ": older step " << steps.front();
    } catch (const CorruptData& error) {
      ASSERT_EQ(older, OlderStep::whole_or_refused) << where << ": " << error.what();
    }
  }

  TemporaryFolder folder_{memory_folder()}, copies_{memory_folder()};
  SwapStoreOptions options_{{folder_.path("rank-00000")}, Durability::step, "{}"};
  std::unique_ptr<IoEngine> engine_ = make_thread_engine({});
  std::vector<Recorded> run_;
  Knowledge knowledge_;
  std::array<std::uint64_t, 3> pending_{};
  std::map<std::uint64_t, std::array<std::uint64_t, 3>> contents_;
  std::map<std::uint64_t, std::set<std::array<std::uint64_t, 3>>> attempts_;
};

TEST_F(CrashTest, a_kill_before_any_call_leaves_the_last_committed_step) {
  record();
  ASSERT_GT(run_.size(), 140u);
  Disk disk;
  for (std::size_t count = 0; count < run_.size(); ++count) {
    check(disk, run_[count].before, OlderStep::must_be_whole, "before call " + std::to_string(count));
    disk.apply(run_[count].event);
  }
}

TEST_F(CrashTest,
       a_power_cut_before_any_call_that_loses_everything_unflushed_leaves_the_last_committed_step) {
  record();
  std::mt19937 random(1);
  for (std::size_t count = 0; count < run_.size(); ++count) {
    Disk disk;
    for (const FileEvent& event : surviving(run_, count, options_.directories[0], random, 0))
      disk.apply(event);
    check(disk, run_[count].before, OlderStep::whole_or_refused, "before call " + std::to_string(count));
  }
}

TEST_F(CrashTest, a_power_cut_that_loses_tears_and_reorders_at_random_leaves_the_last_committed_step) {
  record();
  for (unsigned seed = 0; seed < 2; ++seed) {
    std::mt19937 random(seed);
    for (std::size_t count = 0; count < run_.size(); ++count) {
      Disk disk;
      for (const FileEvent& event : surviving(run_, count, options_.directories[0], random, 50))
        disk.apply(event);
      check(disk, run_[count].before, OlderStep::whole_or_refused,
            "seed " + std::to_string(seed) + " before call " + std::to_string(count));
    }
  }
}

TEST_F(CrashTest, the_recorded_run_flushes_data_before_the_record_that_names_it) {
  record();
  bool data_dirty = false;
  for (const Recorded& recorded : run_) {
    const FileEvent& event = recorded.event;
    if (event.path.ends_with("extents.bin")) data_dirty = event.call == FileCall::write;
    const bool commit_record =
        event.call == FileCall::write && event.path.ends_with("journal.bin") && event.data.size() > 1000;
    if (commit_record) {
      EXPECT_FALSE(data_dirty);
    }
  }
}

}  // namespace
}  // namespace headrace::testing
