// One store over several paths, with and without parity: what is written is read, whatever path is lost.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <set>

#include "swap/description.h"
#include "swap/journal.h"
#include "tests/unit/swap/paths_fixture.h"
#include "tests/unit/swap/syscall_hook.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<Bytes> many_odd_sizes = {4096, 1, 0, 12289, 511, 8192, 100'000, 4097, 65'536, 33};

TEST_F(SwapPathsTest,
       every_number_of_paths_and_parity_keeps_its_steps_and_does_without_any_paths_up_to_parity) {
  for (std::uint32_t paths = 1; paths <= 5; ++paths)
    for (std::uint32_t parity = 0; parity < std::min(paths, 4u); ++parity) {
      const SwapStoreOptions there = options(paths, parity);
      {
        const auto store = create(there, many_odd_sizes);
        for (std::uint64_t step = 1; step <= 3; ++step) commit_and_release(*store, step);
        ASSERT_TRUE(holds_step(*store, 3)) << paths << " paths, parity " << parity;
      }
      for (std::uint32_t lost = 0; lost < 1u << paths; ++lost) {  // which ones are away
        if (static_cast<std::uint32_t>(__builtin_popcount(lost)) > parity) continue;
        for (std::uint32_t p = 0; p < paths; ++p)
          if ((lost >> p & 1) != 0) fs::rename(path(p), path(p) + ".away");
        const auto store = SwapStore::open_read_only(there.directories, *engine_);
        EXPECT_EQ(store->lost_directories().size(), static_cast<std::size_t>(__builtin_popcount(lost)));
        ASSERT_TRUE(holds_step(*store, 3)) << paths << " paths, parity " << parity << ", lost " << lost;
        for (std::uint32_t p = 0; p < paths; ++p)
          if ((lost >> p & 1) != 0) fs::rename(path(p) + ".away", path(p));
      }
      SwapStore::remove(there.directories);
      ASSERT_TRUE(folder_.names().empty());
    }
}

TEST_F(SwapPathsTest, a_path_holds_its_part_of_the_blocks_alone) {
  SwapStoreOptions there = options(3);
  there.path_rates = {1e9, 2e9, 1e9};
  const auto store = create(there, std::vector<Bytes>(8, 1 << 16));
  for (std::uint32_t p = 0; p < 3; ++p)
    EXPECT_EQ(fs::file_size(path(p) + "/extents.bin"), 2u * (p == 1 ? 4 : 2) << 16);
  commit_and_release(*store, 1);
  EXPECT_TRUE(holds_step(*store, 1));
  const std::vector<Bytes> bytes = SwapStore::disk_bytes(store->blocks(), there);
  EXPECT_EQ(bytes[0], bytes[2]);
  EXPECT_EQ(bytes[1] - bytes[0], 4u << 16);
}

TEST_F(SwapPathsTest, folders_are_recognised_in_any_order_and_at_other_places) {
  { commit_and_release(*create(options(3, 1)), 1); }
  SwapStoreOptions moved = options(3, 1);
  fs::rename(path(1), folder_.path("elsewhere"));
  moved.directories = {path(2), path(0), folder_.path("elsewhere")};
  const auto store = open(moved);
  EXPECT_TRUE(store->lost_directories().empty());
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_F(SwapPathsTest, too_few_or_repeated_folders_and_senseless_parity_are_refused) {
  const auto refusal = [&](const SwapStoreOptions& there) {
    return message_of<UsageError>([&] { create(there); });
  };
  EXPECT_THAT(refusal(options(2, 2)), HasSubstr("parity 2 needs more than 2"));
  SwapStoreOptions twice = options(1);
  twice.directories.push_back(folder_.path() + "/./p0/");
  EXPECT_THAT(refusal(twice), AllOf(HasSubstr("same folder"), HasSubstr(path(0))));
  SwapStoreOptions rates = options(2);
  rates.path_rates = {1e9};
  EXPECT_THAT(refusal(rates), HasSubstr("2 swap paths have 1 rates"));
  EXPECT_TRUE(folder_.names().empty());
  { commit_and_release(*create(options(3)), 1); }
  EXPECT_THAT(message_of<UsageError>([&] { open(options(2)); }),
              AllOf(HasSubstr("has 3 paths"), HasSubstr(path(2))));
  EXPECT_THAT(message_of<UsageError>([&] { open(options(3, 1)); }), HasSubstr("parity 0"));
  EXPECT_EQ(SwapStore::directories_of(path(1)), options(3).directories);
}

TEST_F(SwapPathsTest, a_store_that_cannot_be_made_on_one_path_leaves_nothing_on_any) {
  std::ofstream(path(1)) << "a file";
  EXPECT_THAT(message_of<UsageError>([&] { create(options(3, 1)); }), HasSubstr(path(1)));
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"p1"});
  fs::remove(path(1));
  const SyscallHook hook(folder_.path(), failing(FileCall::reserve, "p2/extents.bin", ENOSPC));
  EXPECT_THAT(message_of<DoesNotFit>([&] { create(options(3, 1)); }), HasSubstr(path(2)));
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(SwapPathsTest, a_missing_path_without_parity_is_refused_by_name) {
  { commit_and_release(*create(options(3)), 1); }
  fs::remove_all(path(1));
  EXPECT_THAT(message_of<UsageError>([&] { open(options(3)); }), HasSubstr(path(1)));
  EXPECT_FALSE(fs::exists(path(1)));
}

TEST_F(SwapPathsTest, more_lost_paths_than_parity_are_refused_by_name) {
  { commit_and_release(*create(options(4, 1)), 1); }
  fs::remove_all(path(1));
  fs::remove(path(3) + "/journal.bin");
  EXPECT_THAT(message_of<CorruptData>([&] { open(options(4, 1)); }),
              AllOf(HasSubstr(path(1)), HasSubstr(path(3)), HasSubstr("2 of its 4")));
}

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

TEST_F(SwapPathsTest, a_bad_place_is_rebuilt_with_one_warning_and_the_path_stays) {
  const auto store = create(options(3, 1), {100'000, 100'000});
  commit_and_release(*store, 1);
  const SwapStore::Extent flipped = store->extents(0)[1], unreadable = store->extents(1)[1];
  flip_bit(flipped.path, flipped.offset + 77);
  plan_->add({.direction = IoDirection::read,
              .path_suffix = unreadable.path.substr(folder_.path().size()),
              .begin = unreadable.offset,
              .end = unreadable.offset + 1,
              .code = EIO});
  ::testing::internal::CaptureStderr();
  for (int again = 0; again < 3; ++again) EXPECT_TRUE(holds_step(*store, 1));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(store->lost_directories().empty());
  for (const auto& extent : {flipped, unreadable}) {
    const std::string place = fmt::format("{} at offset {}", extent.path, extent.offset);
    EXPECT_NE(told.find(place), std::string::npos) << told;
    EXPECT_EQ(told.find(place), told.rfind(place)) << told;
  }
  EXPECT_EQ(store->damage(0).size(), 1u);
  plan_->clear();
  commit_and_release(*store, 2);
  EXPECT_TRUE(store->damage(0).empty());
}

TEST_F(SwapPathsTest, more_damage_than_parity_makes_up_for_names_every_place) {
  const auto store = create(options(3, 1), {100'000});
  commit_and_release(*store, 1);
  for (const int piece : {0, 2}) flip_bit(store->extents(0)[piece].path, store->extents(0)[piece].offset);
  EXPECT_THAT(
      message_of<CorruptData>([&] { block_holds(*store, 0, 0); }),
      AllOf(HasSubstr("block0"), HasSubstr(store->extents(0)[0].path), HasSubstr(store->extents(0)[2].path)));
  EXPECT_EQ(store->damage(0).size(), 2u);
}

TEST_F(SwapPathsTest, damage_beside_a_lost_path_is_still_found_in_parity_too) {
  std::vector<SwapStore::Extent> extents;
  {
    const auto store = create(options(4, 2), {100'000});
    commit_and_release(*store, 1);
    extents = store->extents(0);
  }
  fs::remove_all(fs::path(extents[0].path).parent_path());
  flip_bit(extents[3].path, extents[3].offset);
  const auto store = SwapStore::open_read_only(options(4, 2).directories, *engine_);
  const std::vector<std::string> damage = store->damage(0);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_THAT(damage[0], HasSubstr(extents[3].path));
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

// A kill between two notes leaves an epoch on some paths that the others then use for something else.
TEST_F(SwapPathsTest, of_two_states_of_one_epoch_that_of_the_newer_commits_counts_whatever_path_is_missing) {
  { commit_and_release(*create(options(3, 1)), 1); }
  {
    const swap::JournalIdentity identity = swap::read_description(path(0)).journal_identity(0);
    const auto contents = swap::Journal::read(path(0), identity);
    swap::Journal::open(path(0), identity, contents).write_paths_state({2, 1 << 2});
  }
  fs::rename(path(0), folder_.path("away"));
  {
    const auto store = open(options(3, 1));
    for (const std::uint64_t step : {2, 3}) commit_and_release(*store, step);
  }
  fs::rename(folder_.path("away"), path(0));
  {
    const auto store = open(options(3, 1));
    EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(0)});
    EXPECT_TRUE(holds_step(*store, 3));
  }
  fs::remove_all(path(1));
  EXPECT_THROW((void)open(options(3, 1)), Error) << "p0 is old, and p2 alone is too little";
}

TEST_F(SwapPathsTest, of_two_commits_of_one_number_that_of_fewer_journals_is_stale) {
  const auto change_record_on = [&](std::uint32_t p) {
    const swap::JournalIdentity identity = swap::read_description(path(p)).journal_identity(p);
    swap::JournalContents contents = swap::Journal::read(path(p), identity);
    contents.history.newest->commit.metadata = "another run's";
    swap::Journal::replace(path(p), identity, contents.state, contents.history);
  };
  { commit_and_release(*create(options(3, 1)), 1); }
  change_record_on(0);
  const auto store = open(options(3, 1));
  EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(0)});
  EXPECT_EQ(store->commits().back().metadata, "metadata of step 1");
}

TEST_F(SwapPathsTest, a_path_whose_lock_was_taken_away_is_lost_at_the_next_commit) {
  const auto store = create(options(3, 1));
  commit_and_release(*store, 1);
  fs::remove(path(2) + "/lock");
  commit_and_release(*store, 2);
  EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(2)});
}

TEST_F(SwapPathsTest, disk_bytes_of_senseless_options_are_refused) {
  const std::vector<SwapBlock> blocks = blocks_of({4096});
  EXPECT_THROW((void)SwapStore::disk_bytes(blocks, options(2, 2)), UsageError);
  SwapStoreOptions rates = options(2);
  rates.path_rates = {0, 0};
  EXPECT_THROW((void)SwapStore::disk_bytes(blocks, rates), UsageError);
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

// [Note: one commit in several journals]: each half could go on without the other.
TEST_F(SwapPathsTest, half_the_paths_are_opened_only_when_the_others_are_known_to_be_lost) {
  {
    const auto store = create(options(2, 1));
    commit_and_release(*store, 1);
    fs::rename(path(0), folder_.path("away"));
    commit_and_release(*store, 2);
    commit_and_release(*store, 3);
  }
  { EXPECT_TRUE(holds_step(*open(options(2, 1)), 3)); }
  fs::rename(path(1), folder_.path("newer"));
  fs::rename(folder_.path("away"), path(0));
  EXPECT_THAT(message_of<UsageError>([&] { (void)open(options(2, 1)); }),
              AllOf(HasSubstr("bring back"), HasSubstr(path(1)), HasSubstr("--repair"), HasSubstr("step 1")));
  fs::rename(folder_.path("newer"), path(1));
  const auto store = open(options(2, 1));
  EXPECT_EQ(steps_of(*store), std::vector<std::uint64_t>{3});
  EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(0)});
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

TEST_F(SwapPathsTest, writes_need_no_more_parity_memory_than_was_agreed_and_use_the_callers) {
  SwapStoreOptions there = options(3, 1);
  there.parity_buffers = 1;
  const std::vector<SwapBlock> blocks = blocks_of(std::vector<Bytes>(20, 10'000));
  const Bytes bytes = SwapStore::parity_bytes(blocks, there);
  EXPECT_EQ(bytes, 2u * 8192);
  EXPECT_EQ(SwapStore::parity_bytes(blocks, options(3)), 0u);
  Buffer memory(bytes);
  there.parity_memory = memory.memory();
  const auto store = SwapStore::create(there, blocks, *engine_);
  commit_and_release(*store, 1);  // 20 writes in flight with one buffer
  fs::remove_all(path(1));
  commit_and_release(*store, 2);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<SwapTicket> reads;
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    buffers.push_back(std::make_unique<Buffer>(store->buffer_bytes(block)));
    reads.push_back(store->read(block, buffers.back()->lease()));
  }
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    reads[block].wait();
    EXPECT_TRUE(holds(buffers[block]->memory().first(10'000), seed_of(2, block)));
  }
}

TEST_F(SwapPathsTest, rates_of_folders_are_measured_and_leave_no_file) {
  const TemporaryFolder on_disk;
  fs::create_directory(on_disk.path("p0"));
  const std::vector<double> rates =
      measure_path_rates({on_disk.path("p0"), on_disk.path("missing")}, *engine_);
  const bool direct = IoFile::open(on_disk.path("file"), IoFile::Mode::create).direct();
  EXPECT_EQ(rates[0] > 1e6, direct) << "the page cache says nothing of a drive";
  EXPECT_EQ(rates[1], 0);
  EXPECT_TRUE(on_disk.names("p0").empty());
}

// A child commits and goes back, loses a path now and then, and is killed before any of its file calls.
class KilledBeforeAnyCall : public SwapPathsTest {
 protected:
  enum class Run { commits, goes_back, loses_a_path, repairs };
  // Whether the run ended before the call.
  bool run_and_kill(Run kind, std::uint32_t parity, int call) {
    const pid_t child = ::fork();
    if (child == 0) {
      int seen = 0;
      const SyscallHook hook(folder_.path(), [&](const FileEvent&) {
        if (seen++ == call) ::raise(SIGKILL);
        return 0;
      });
      const auto engine = make_thread_engine({});
      if (kind == Run::repairs) {
        (void)SwapStore::repair(options(3, parity).directories, *engine);
      } else {
        const auto store = SwapStore::open(options(3, parity), *engine);
        run_steps(kind, *store);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status);
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
  void start_again(std::uint32_t parity) {
    for (const std::string& name : folder_.names()) fs::remove_all(folder_.path(name));
    const auto engine = make_thread_engine({});
    const auto store = SwapStore::create(options(3, parity), blocks_of({100'000, 4097}), *engine);
    commit_step(*store, 1);
    store->release_superseded();
  }
};

TEST_F(KilledBeforeAnyCall, a_run_leaves_a_whole_step_on_all_paths_and_on_those_that_are_left) {
  for (const Run kind : {Run::commits, Run::goes_back, Run::loses_a_path})
    for (const std::uint32_t parity : {0u, 1u}) {
      if (kind == Run::loses_a_path && parity == 0) continue;
      std::set<std::uint64_t> found;
      for (int call = 0;; ++call) {
        start_again(parity);
        const bool ended = run_and_kill(kind, parity, call);
        const auto store = open(options(3, parity));
        const std::uint64_t step = steps_of(*store).back();
        found.insert(step);
        ASSERT_TRUE(holds_step(*store, step)) << "before call " << call;
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
    start_again(1);
    {
      const auto store = open(options(3, 1));
      fs::remove_all(path(0));
      commit_and_release(*store, 2);
    }
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
    start_again(1);
    {
      const auto store = open(options(3, 1));
      fs::remove_all(path(0));
      commit_and_release(*store, 2);
    }
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

// [Note: one commit in several journals]: a path that comes back with a commit that was taken back.
TEST_F(SwapPathsTest, a_commit_that_was_taken_back_while_its_path_was_away_does_not_come_back) {
  {
    const auto store = create(options(3, 1));
    commit_and_release(*store, 1);
    write_together(*store, 2);
    // p0 gets the record; p1 is full; p0 dies before the record can be taken back.
    int on_p0 = 0, on_p1 = 0;
    const SyscallHook hook(folder_.path(), [&](const FileEvent& event) {
      if (event.call != FileCall::write || event.offset <= 1024) return 0;  // the states of the paths
      if (event.path.ends_with("p0/journal.bin") && on_p0++ > 0) return EIO;
      return event.path.ends_with("p1/journal.bin") && on_p1++ == 0 ? ENOSPC : 0;
    });
    EXPECT_THROW(store->commit({2, ""}), IoError);
    store->rollback();
    EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(0)});
    write_together(*store, 5);  // over the extents that the record on p0 names
  }
  const auto store = open(options(3, 1));
  EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(0)});
  EXPECT_EQ(steps_of(*store), std::vector<std::uint64_t>{1});
  EXPECT_TRUE(holds_step(*store, 1));
}

}  // namespace
}  // namespace headrace::testing
