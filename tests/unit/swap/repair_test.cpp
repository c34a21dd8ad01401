// What `headrace inspect --repair` does: SwapStore::repair().
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/power_loss/syscall_hook.h"
#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(SwapPathsTest, an_empty_folder_takes_the_place_of_one_that_is_gone) {
  { commit_and_release(*create(options(3, 1)), 1); }
  fs::remove_all(path(1));
  SwapStoreOptions replaced = options(3, 1);
  replaced.directories[1] = folder_.path("new drive");
  EXPECT_TRUE(SwapStore::repair(replaced.directories, *engine_).paths[1].rejoined);
  EXPECT_EQ(SwapStore::directories_of(path(0)), replaced.directories);
  fs::remove_all(path(0));
  EXPECT_TRUE(holds_step(*open(replaced), 1));
}

TEST_F(SwapPathsTest, repair_rebuilds_damaged_pieces_parity_too_and_says_what_it_cannot) {
  std::vector<SwapStore::Extent> extents;
  {
    const auto store = create(options(4, 2), {100'000, 5000});
    commit_and_release(*store, 1);
    extents = store->extents(0);
  }
  flip_bit(extents[0].path, extents[0].offset);
  flip_bit(extents[3].path, extents[3].offset + 100);
  const SwapRepair repair = SwapStore::repair(options(4, 2).directories, *engine_);
  EXPECT_TRUE(repair.problems.empty());
  std::uint64_t rebuilt = 0;
  for (const SwapRepairedPath& done : repair.paths) rebuilt += done.pieces_rebuilt;
  EXPECT_EQ(rebuilt, 2u);
  {
    const auto store = open(options(4, 2));
    EXPECT_TRUE(store->damage(0).empty());
  }
  for (const int piece : {0, 1, 2}) flip_bit(extents[piece].path, extents[piece].offset);
  const SwapRepair failed = SwapStore::repair(options(4, 2).directories, *engine_);
  ASSERT_EQ(failed.problems.size(), 1u);
  EXPECT_THAT(failed.problems[0], HasSubstr("block0"));
}

TEST_F(SwapPathsTest, what_cannot_be_rebuilt_is_said_once_with_what_to_do_and_listed_by_name) {
  for (const std::uint32_t parity : {0u, 1u}) {
    std::vector<SwapStore::Extent> extents;
    {
      const auto store = create(options(3, parity), std::vector<Bytes>(5, 10'000));
      commit_and_release(*store, 1);
      for (const std::uint32_t block : {1, 3, 4})
        for (const SwapStore::Extent& extent : store->extents(block)) extents.push_back(extent);
    }
    for (const SwapStore::Extent& extent : extents) flip_bit(extent.path, extent.offset);
    const SwapRepair repair = SwapStore::repair(options(3, parity).directories, *engine_);
    EXPECT_EQ(repair.lost_blocks, (std::vector<std::string>{"block1", "block3", "block4"}));
    ASSERT_EQ(repair.problems.size(), 1u);
    EXPECT_THAT(repair.problems[0], AllOf(HasSubstr("3 of 5 blocks"), HasSubstr("--overwrite-swap")));
    EXPECT_EQ(repair.problems[0].find("no parity") != std::string::npos, parity == 0);
    for (const std::string& name : folder_.names()) fs::remove_all(folder_.path(name));
  }
}

TEST_F(SwapPathsTest, repair_refuses_a_live_store_and_leaves_a_foreign_one_alone) {
  {
    const auto store = create(options(3, 1));
    commit_and_release(*store, 1);
    EXPECT_THROW(SwapStore::repair(options(3, 1).directories, *engine_), UsageError);
  }
  SwapStoreOptions other = options(1);
  other.directories = {folder_.path("other")};
  { commit_and_release(*SwapStore::create(other, blocks_of({4096}), *engine_), 7); }
  SwapStoreOptions mixed = options(3, 1);
  mixed.directories[0] = other.directories[0];
  EXPECT_TRUE(holds_step(*open(mixed), 1));
  EXPECT_THAT(SwapStore::repair(mixed.directories, *engine_).problems[0], HasSubstr("another swap store"));
  EXPECT_EQ(SwapStore::describe(other.directories).commits.back().step, 7u);
}

TEST_F(SwapPathsTest,
       repair_leaves_a_folder_alone_whose_description_cannot_be_read_and_that_may_be_anothers) {
  { commit_and_release(*create(options(3, 1)), 1); }
  flip_bit(path(1) + "/store.json", 40);
  EXPECT_TRUE(SwapStore::repair(options(3, 1).directories, *engine_).problems.empty()) << "its journal tells";
  flip_bit(path(1) + "/store.json", 40);
  fs::remove(path(1) + "/journal.bin");
  const SwapRepair repair = SwapStore::repair(options(3, 1).directories, *engine_);
  ASSERT_EQ(repair.problems.size(), 1u);
  EXPECT_THAT(repair.problems[0], AllOf(HasSubstr(path(1)), HasSubstr("another run")));
  EXPECT_FALSE(fs::exists(path(1) + "/journal.bin"));
}

TEST_F(SwapPathsTest, repair_goes_on_without_a_path_that_takes_no_writes_or_no_flush) {
  { commit_and_release(*create(options(5, 2), many_odd_sizes), 1); }
  for (const std::uint32_t gone : {0, 1}) fs::remove_all(path(gone));
  fail(1, IoDirection::write, EIO);
  SwapRepair repair = SwapStore::repair(options(5, 2).directories, *engine_);
  ASSERT_EQ(repair.problems.size(), 1u);
  EXPECT_THAT(repair.problems[0], HasSubstr(path(1)));
  EXPECT_TRUE(repair.paths[0].rejoined);
  EXPECT_FALSE(repair.paths[1].rejoined);
  plan_->clear();
  {
    const SyscallHook hook(folder_.path(), failing(FileCall::sync, "p1/extents.bin", EIO));
    repair = SwapStore::repair(options(5, 2).directories, *engine_);
    ASSERT_EQ(repair.problems.size(), 1u);
    EXPECT_FALSE(repair.paths[1].rejoined);
  }
  { EXPECT_EQ(open(options(5, 2))->lost_directories(), std::vector<std::string>{path(1)}); }
  EXPECT_TRUE(SwapStore::repair(options(5, 2).directories, *engine_).problems.empty());
  const auto store = open(options(5, 2));
  EXPECT_TRUE(store->lost_directories().empty());
  for (std::uint32_t block = 0; block < many_odd_sizes.size(); ++block)
    EXPECT_TRUE(store->damage(block).empty());
}

TEST_F(SwapPathsTest, repair_still_reads_a_path_of_which_one_place_cannot_be_written) {
  std::vector<SwapStore::Extent> first, second;
  {
    const auto store = create(options(4, 2), {100'000, 100'000});
    commit_and_release(*store, 1);
    first = store->extents(0), second = store->extents(1);
  }
  const auto piece_on = [&](const std::vector<SwapStore::Extent>& extents, std::uint32_t p) {
    return *std::find_if(extents.begin(), extents.end(), [&](const SwapStore::Extent& extent) {
      return extent.path.starts_with(path(p) + "/");
    });
  };
  flip_bit(path(0) + "/extents.bin", piece_on(first, 0).offset);
  flip_bit(path(2) + "/extents.bin", piece_on(second, 2).offset);
  fs::remove_all(path(1));
  fail(0, IoDirection::write, EIO);
  const SwapRepair repair = SwapStore::repair(options(4, 2).directories, *engine_);
  ASSERT_EQ(repair.problems.size(), 1u);
  EXPECT_THAT(repair.problems[0], HasSubstr(path(0)));
  EXPECT_TRUE(repair.paths[1].rejoined);
  EXPECT_TRUE(holds_step(*open(options(4, 2)), 1));
}

TEST_F(SwapPathsTest, half_the_paths_that_are_left_for_good_are_made_whole_by_repair) {
  { commit_and_release(*create(options(2, 1)), 1); }
  fs::remove_all(path(1));
  EXPECT_THROW((void)open(options(2, 1)), UsageError);
  EXPECT_TRUE(SwapStore::repair(options(2, 1).directories, *engine_).problems.empty());
  const auto store = open(options(2, 1));
  EXPECT_TRUE(store->lost_directories().empty());
  EXPECT_TRUE(holds_step(*store, 1));
}

}  // namespace
}  // namespace headrace::testing
