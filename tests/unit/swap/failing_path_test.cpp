// Paths that fail or vanish while a store is open: with parity it goes on without them, with one warning.
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>

#include "tests/support/power_loss/syscall_hook.h"
#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Where a path may fail first, and how.
struct Loss {
  const char* name;
  std::optional<FileCall> call;  // a call on a small file, or a flush
  const char* suffix;
  std::optional<IoDirection> direction;  // or block I/O
  int code;
};
class LossTest : public SwapPathsTest, public ::testing::WithParamInterface<Loss> {};
const Loss losses[] = {
    {"write_eio", {}, "", IoDirection::write, EIO},
    {"write_read_only", {}, "", IoDirection::write, EROFS},
    {"read_eio", {}, "", IoDirection::read, EIO},
    {"read_gone", {}, "", IoDirection::read, ENXIO},
    {"flush", FileCall::sync, "p1/extents.bin", {}, EIO},
    {"journal_write", FileCall::write, "p1/journal.bin", {}, EIO},
    {"journal_flush", FileCall::sync, "p1/journal.bin", {}, EIO},
};
INSTANTIATE_TEST_SUITE_P(Places, LossTest, ::testing::ValuesIn(losses),
                         [](const ::testing::TestParamInfo<Loss>& loss) { return loss.param.name; });

TEST_P(LossTest, a_path_that_fails_is_given_up_and_steps_go_on_and_a_stale_return_is_recognised) {
  const Loss& loss = GetParam();
  ::testing::internal::CaptureStderr();
  {
    const auto store = create(options(5, 2), many_odd_sizes);
    commit_and_release(*store, 1);
    {
      const SyscallHook hook(folder_.path(), [&](const FileEvent& event) {
        return loss.call && event.call == *loss.call && event.path.ends_with(loss.suffix) ? loss.code : 0;
      });
      if (loss.direction) fail(1, loss.direction, loss.code);
      EXPECT_TRUE(holds_step(*store, 1));
      commit_and_release(*store, 2);
      EXPECT_TRUE(holds_step(*store, 2));
      EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(1)});
      commit_and_release(*store, 3);
      write_together(*store, 99);
      store->rollback();
      EXPECT_TRUE(holds_step(*store, 3));
    }
    plan_->clear();
    commit_and_release(*store, 4);  // it answers again, and is not asked
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.find("is lost"), told.rfind("is lost")) << told;
  EXPECT_THAT(told, AllOf(HasSubstr(path(1)), HasSubstr("--repair")));

  EXPECT_EQ(SwapStore::describe(options(5, 2).directories).paths[1].state, SwapPath::State::stale);
  {
    const auto store = open(options(5, 2));
    EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(1)});
    EXPECT_EQ(steps_of(*store).back(), 4u);
    EXPECT_TRUE(holds_step(*store, 4));
    commit_and_release(*store, 5);
  }
  const SwapRepair repair = SwapStore::repair(options(5, 2).directories, *engine_);
  EXPECT_TRUE(repair.problems.empty());
  EXPECT_TRUE(repair.paths[1].rejoined);
  EXPECT_GT(repair.paths[1].pieces_rebuilt, 0u);
  EXPECT_EQ(repair.paths[0].pieces_rebuilt, 0u);
  // The repaired path carries others that are now lost.
  fs::remove_all(path(0));
  fs::remove_all(path(2));
  const auto store = open(options(5, 2));
  EXPECT_TRUE(holds_step(*store, 5));
}

TEST_F(SwapPathsTest, a_deleted_folder_is_noticed_at_the_next_commit_and_repaired_from_nothing) {
  {
    const auto store = create(options(3, 1));
    commit_and_release(*store, 1);
    fs::remove_all(path(2));
    commit_and_release(*store, 2);
    EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(2)});
    commit_and_release(*store, 3);
  }
  EXPECT_FALSE(fs::exists(path(2)));
  const SwapRepair repair = SwapStore::repair(options(3, 1).directories, *engine_);
  EXPECT_TRUE(repair.paths[2].rejoined);
  EXPECT_TRUE(repair.problems.empty());
  {
    const auto store = open(options(3, 1));
    EXPECT_TRUE(store->lost_directories().empty());
    for (std::uint32_t block = 0; block < odd_sizes.size(); ++block)
      EXPECT_TRUE(store->damage(block).empty());
    commit_and_release(*store, 4);
    store->remove_on_close();
  }
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(SwapPathsTest,
       without_parity_a_deleted_folder_is_an_error_that_names_it_and_the_state_is_not_changed) {
  const auto store = create(options(2));
  commit_and_release(*store, 1);
  write_together(*store, 2);
  fs::rename(path(1), folder_.path("away"));
  EXPECT_THAT(message_of<IoError>([&] { store->commit({2, ""}); }), HasSubstr(path(1)));
  fs::rename(folder_.path("away"), path(1));
  store->rollback();
  EXPECT_TRUE(holds_step(*store, 1));
  commit_and_release(*store, 2);
}

TEST_F(SwapPathsTest, more_lost_paths_than_parity_in_mid_run_are_one_error_and_the_last_commit_stays) {
  {
    const auto store = create(options(3, 1));
    commit_and_release(*store, 1);
    fail(0, IoDirection::write, EIO);
    fail(2, IoDirection::write, EIO);
    EXPECT_THAT(message_of<IoError>([&] { commit_and_release(*store, 2); }),
                AllOf(HasSubstr(path(0)), HasSubstr(path(2)), HasSubstr("2 of 3")));
    EXPECT_THROW(store->commit({2, ""}), IoError);
    EXPECT_THROW(write_together(*store, 2), IoError);
    EXPECT_THROW(store->rollback(), IoError);
  }
  plan_->clear();
  const auto store = open(options(3, 1));
  EXPECT_EQ(steps_of(*store).back(), 1u);
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_F(SwapPathsTest, a_full_disk_on_one_path_is_no_lost_path_and_the_step_can_be_done_again) {
  const auto store = create(options(3, 1));
  commit_and_release(*store, 1);
  fail(1, IoDirection::write, ENOSPC);
  EXPECT_THAT(message_of<IoError>([&] { write_together(*store, 2); }),
              AllOf(HasSubstr(path(1)), HasSubstr("No space left")));
  EXPECT_THROW(store->commit({2, ""}), IoError);
  EXPECT_TRUE(store->lost_directories().empty());
  plan_->clear();
  store->rollback();
  EXPECT_TRUE(holds_step(*store, 1));
  for (const std::uint32_t p : {0u, 1u, 2u}) {
    const SyscallHook hook(folder_.path(),
                           failing(FileCall::write, "p" + std::to_string(p) + "/journal.bin", ENOSPC));
    write_together(*store, 2);
    EXPECT_THROW(store->commit({2, ""}), IoError);
    store->rollback();
    EXPECT_EQ(steps_of(*SwapStore::open_read_only(options(3, 1).directories, *engine_)).back(), 1u);
  }
  EXPECT_TRUE(store->lost_directories().empty());
  commit_and_release(*store, 2);
  EXPECT_TRUE(holds_step(*store, 2));
}

TEST_F(SwapPathsTest, a_path_whose_lock_was_taken_away_is_lost_at_the_next_commit) {
  const auto store = create(options(3, 1));
  commit_and_release(*store, 1);
  fs::remove(path(2) + "/lock");
  commit_and_release(*store, 2);
  EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(2)});
}

TEST_F(SwapPathsTest, an_owner_that_cannot_be_read_is_unknown_and_ends_no_resume_without_its_path) {
  { commit_and_release(*create(options(3, 1)), 1); }
  fs::remove(path(2) + "/lock");
  fs::create_directory(path(2) + "/lock");  // open(2) works, read(2) fails
  fs::remove(path(2) + "/extents.bin");
  SwapStore::require_free(options(3, 1).directories);
  EXPECT_EQ(SwapStore::describe(options(3, 1).directories).paths[2].owner.state, SwapOwner::State::unknown);
  EXPECT_TRUE(holds_step(*open(options(3, 1)), 1));
}

TEST_F(SwapPathsTest, durability_none_goes_on_without_a_path_too) {
  const auto store = create(options(3, 1, Durability::none));
  commit_and_release(*store, 1);
  fail(0, {}, EIO);
  EXPECT_TRUE(holds_step(*store, 1));
  commit_and_release(*store, 2);
  EXPECT_TRUE(holds_step(*store, 2));
}

// The scratch store: reads and writes start one at a time, and every lane waits for its own.
TEST_F(SwapPathsTest, durability_none_lets_threads_share_the_parity_buffers_and_a_path_be_lost_meanwhile) {
  constexpr std::uint32_t lanes = 4, rounds = 300;
  SwapStoreOptions there = options(3, 1, Durability::none);
  there.parity_buffers = 2;
  const auto store = create(there, std::vector<Bytes>(lanes, 20'000));
  plan_->add({.direction = IoDirection::write, .path_suffix = "p1/extents.bin", .first = 500, .code = EIO});
  std::mutex starting;
  std::atomic<std::uint32_t> wrong = 0;
  const auto run_lane = [&](std::uint32_t block) {
    Buffer buffer(store->buffer_bytes(block));
    const auto start = [&](auto&& transfer) {
      const std::lock_guard lock(starting);
      return transfer();
    };
    for (std::uint32_t round = 0; round < rounds; ++round) {
      fill(buffer.memory().first(20'000), seed_of(round, block));
      start([&] { return store->write(block, buffer.lease()); }).wait();
      std::memset(buffer.memory().data(), 0, 20'000);
      start([&] { return store->read(block, buffer.lease()); }).wait();
      wrong += !holds(buffer.memory().first(20'000), seed_of(round, block));
    }
  };
  std::vector<std::future<void>> running;
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    running.push_back(std::async(std::launch::async, run_lane, lane));
  for (std::future<void>& lane : running) EXPECT_NO_THROW(lane.get());
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(1)});
}

}  // namespace
}  // namespace headrace::testing
