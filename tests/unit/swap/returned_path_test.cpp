// A path that was away comes back with old contents: it is not believed ([Note: one commit in several
// journals] in swap/format.h).
#include <gmock/gmock.h>

#include <filesystem>

#include "headrace/swap_journal.h"
#include "swap/description.h"
#include "swap/journal.h"
#include "tests/support/power_loss/syscall_hook.h"
#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

// Old contents end with a whole record, or with one that a kill has torn; damage does not end there.
TEST_F(SwapPathsTest, a_journal_whose_records_do_not_check_is_damaged_and_one_that_ends_early_is_old) {
  const std::string journal = path(1) + "/journal.bin", whole = folder_.path("whole"),
                    old = folder_.path("old");
  {
    const auto store = create(options(3, 1));
    for (std::uint64_t step = 1; step <= 6; ++step) {
      commit_and_release(*store, step);
      if (step == 2) fs::copy_file(journal, old);
    }
  }
  fs::copy_file(journal, whole);
  const auto found = [&] { return SwapStore::describe(options(3, 1).directories).paths[1]; };
  const auto put = [&](const std::string& file) {
    fs::copy_file(file, journal, fs::copy_options::overwrite_existing);
  };
  const auto records = read_swap_journal(path(1)).records;
  for (std::size_t r = 1; r < records.size(); ++r) flip_bit(journal, records[r].offset + 36);
  EXPECT_EQ(found().state, SwapPath::State::damaged);
  EXPECT_THAT(found().problem, AllOf(HasSubstr("is damaged at offset"), HasSubstr("no record checks")));
  put(old);
  EXPECT_EQ(found().state, SwapPath::State::stale);
  EXPECT_THAT(found().problem, HasSubstr("4 commits before"));
  fs::resize_file(journal, fs::file_size(journal) + records[0].bytes);
  EXPECT_EQ(found().state, SwapPath::State::stale) << "one record may be torn";
  put(whole);
  EXPECT_EQ(found().state, SwapPath::State::good);
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
