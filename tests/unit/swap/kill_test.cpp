// Processes are killed: before each call that changes a file, and at random moments. The last committed step
// stays, whatever was under way.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "tests/unit/swap/killed_child.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;

// A child commits and goes back, loses a path now and then, and is killed before any of its file calls.
class KilledBeforeAnyCall : public KilledChildTest {
 protected:
  enum class Run { commits, goes_back, loses_a_path, repairs };
  static constexpr const char* names[] = {"commits", "goes back", "loses a path", "repairs"};
  // Whether the run ended before the call.
  bool run_and_kill(Run kind, std::uint32_t parity, int call) {
    return ends_before_call(call, [&](IoEngine& engine) {
      if (kind == Run::repairs) {
        (void)SwapStore::repair(options(3, parity).directories, engine);
      } else {
        const auto store = SwapStore::open(options(3, parity), engine);
        run_steps(kind, *store);
      }
    });
  }
  void run_steps(Run kind, SwapStore& store) {
    if (kind == Run::loses_a_path) fs::remove_all(path(2));
    write_step(store, 2);
    store.commit({2, ""});
    if (kind == Run::goes_back) {
      store.position_at(1);
      write_step(store, 3);
      store.commit({3, ""});
    }
    store.release_superseded();
  }
  // Without its first path the store has gone on to step 2.
  void start_again_with_a_lost_path() {
    start_again(1);
    const auto store = open(options(3, 1));
    fs::remove_all(path(0));
    commit_and_release(*store, 2);
  }
};

TEST_F(KilledBeforeAnyCall, a_run_leaves_a_whole_step_on_all_paths_and_on_those_that_are_left) {
  for (const Run kind : {Run::commits, Run::goes_back, Run::loses_a_path})
    for (const std::uint32_t parity : {0u, 1u}) {
      if (kind == Run::loses_a_path && parity == 0) continue;
      std::set<std::uint64_t> found;
      for (int call = 0;; ++call) {
        SCOPED_TRACE(
            fmt::format("{}, parity {}, before call {}", names[static_cast<int>(kind)], parity, call));
        start_again(parity);
        const bool ended = run_and_kill(kind, parity, call);
        const auto store = open(options(3, parity));
        const std::uint64_t step = steps_of(*store).back();
        found.insert(step);
        ASSERT_TRUE(holds_step(*store, step));
        ASSERT_LE(steps_of(*store).size(), 2u);
        store->release_superseded();
        commit_and_release(*store, step + 10);
        ASSERT_TRUE(holds_step(*store, step + 10));
        if (ended) break;
        ASSERT_LT(call, 200);
      }
      EXPECT_GE(found.size(), 2u);
    }
}

TEST_F(KilledBeforeAnyCall, a_run_that_goes_back_leaves_a_whole_step_without_any_one_path) {
  for (int call = 0;; ++call) {
    start_again(1);
    const bool ended = run_and_kill(Run::goes_back, 1, call);
    fs::remove_all(path(static_cast<std::uint32_t>(call) % 3));
    const auto store = open(options(3, 1));
    EXPECT_TRUE(holds_step(*store, steps_of(*store).back())) << "before call " << call;
    if (ended) break;
    ASSERT_LT(call, 200);
  }
}

TEST_F(KilledBeforeAnyCall, a_repair_leaves_the_store_as_it_was_or_repaired) {
  for (int call = 0;; ++call) {
    start_again_with_a_lost_path();
    const bool ended = run_and_kill(Run::repairs, 1, call);
    EXPECT_TRUE(holds_step(*open(options(3, 1)), 2)) << "before call " << call;
    (void)SwapStore::repair(options(3, 1).directories, *engine_);
    const auto store = open(options(3, 1));
    ASSERT_TRUE(store->lost_directories().empty()) << "before call " << call;
    for (std::uint32_t block = 0; block < 2; ++block) ASSERT_TRUE(store->damage(block).empty());
    if (ended) break;
    ASSERT_LT(call, 100);
  }
}

TEST_F(KilledBeforeAnyCall,
       a_repair_and_a_step_without_the_repaired_path_never_mix_old_pieces_with_new_ones) {
  for (int call = 0;; ++call) {
    start_again_with_a_lost_path();
    const bool ended = run_and_kill(Run::repairs, 1, call);
    std::error_code none;  // a kill may have been before the folder was made
    fs::rename(path(0), folder_.path("away"), none);
    { commit_and_release(*open(options(3, 1)), 3); }
    fs::rename(folder_.path("away"), path(0), none);
    const auto store = open(options(3, 1));
    EXPECT_EQ(steps_of(*store).back(), 3u) << "before call " << call;
    EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(0)}) << "before call " << call;
    EXPECT_TRUE(holds_step(*store, 3));
    if (ended) break;
    ASSERT_LT(call, 100);
  }
}

// A child commits step after step and says which; the parent kills it at a random moment.
std::uint64_t last_step_before_kill(const SwapStoreOptions& options, std::chrono::microseconds after) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto engine = make_thread_engine({});
    const auto store = SwapStore::create(options, blocks_of(odd_sizes), *engine);
    for (std::uint64_t step = 1;; ++step) {
      commit_step(*store, step);
      (void)!::write(ends[1], &step, sizeof(step));
      store->release_superseded();
    }
  }
  ::close(ends[1]);
  std::uint64_t step = 0, acknowledged = 0;
  (void)!::read(ends[0], &acknowledged, sizeof(acknowledged));  // at least one commit
  std::this_thread::sleep_for(after);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  while (::read(ends[0], &step, sizeof(step)) == static_cast<ssize_t>(sizeof(step))) acknowledged = step;
  ::close(ends[0]);
  return acknowledged;
}

TEST(KillTest, kill_9_at_random_moments_leaves_the_last_acknowledged_step_or_the_one_being_committed) {
  const TemporaryFolder folder(memory_folder());
  std::mt19937 random(7);
  for (const auto& [paths, parity, rounds] : {std::tuple{1u, 0u, 20}, {3u, 0u, 8}, {3u, 1u, 8}})
    for (int round = 0; round < rounds; ++round) {
      SwapStoreOptions options{{}, Durability::step, "{}", parity};
      for (std::uint32_t path = 0; path < paths; ++path)
        options.directories.push_back(folder.path(fmt::format("{}-of-{}-parity-{}", path, paths, parity)));
      const std::chrono::microseconds after(random() % 8000);
      SCOPED_TRACE(fmt::format("{} paths, parity {}, killed after {} us", paths, parity, after.count()));
      const std::uint64_t acknowledged = last_step_before_kill(options, after);
      ASSERT_GT(acknowledged, 0u);
      const auto engine = make_thread_engine({});
      const auto store = SwapStore::open(options, *engine);
      const std::uint64_t newest = store->commits().back().step;
      EXPECT_GE(newest, acknowledged);
      EXPECT_LE(newest, acknowledged + 1);
      EXPECT_TRUE(store->lost_directories().empty());
      EXPECT_TRUE(holds_step(*store, newest));
      if (store->commits().size() == 2) {
        store->position_at(newest - 1);
        EXPECT_TRUE(holds_step(*store, newest - 1));
      }
    }
}

}  // namespace
}  // namespace headrace::testing
