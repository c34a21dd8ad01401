// Where a store's paths lie, as its folders record it: right for who is given only one of them, whatever
// became of the repair that moved a path.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/unit/swap/killed_child.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Directories = SwapStore::Directories;

class RepairFoldersTest : public KilledChildTest {
 protected:
  // Whether the repair ended before the call.
  bool repair_and_kill(const Directories& directories, int call) {
    return ends_before_call(call, [&](IoEngine& engine) { (void)SwapStore::repair(directories, engine); });
  }
  void expect_whole(const Directories& directories, int call) {
    for (const std::string& directory : directories)
      EXPECT_EQ(SwapStore::directories_of(directory), directories) << "before call " << call;
    for (const SwapPath& found : SwapStore::describe(directories).paths)
      EXPECT_EQ(found.state, SwapPath::State::good) << "before call " << call << ": " << found.problem;
    SwapStoreOptions there = options(3, 1);
    there.directories = directories;
    const auto store = open(there);
    EXPECT_TRUE(holds_step(*store, 1));
    for (std::uint32_t block = 0; block < 2; ++block) EXPECT_TRUE(store->damage(block).empty());
  }
};

TEST_F(RepairFoldersTest,
       a_repair_onto_another_folder_names_the_right_ones_wherever_it_stops_and_goes_on_from_there) {
  const Directories old_ones = options(3, 1).directories, new_ones = {folder_.path("new"), path(1), path(2)};
  bool stopped_with_old_ones = false, stopped_with_new_ones = false;
  for (int call = 0;; ++call) {
    start_again(1);
    fs::remove_all(path(0));
    const bool ended = repair_and_kill(new_ones, call);
    const Directories known = SwapStore::directories_of(path(1));
    EXPECT_EQ(SwapStore::directories_of(path(2)), known) << "before call " << call;
    EXPECT_TRUE(known == old_ones || known == new_ones) << "before call " << call;
    if (SwapStore::describe(new_ones).paths[0].state == SwapPath::State::good) {
      EXPECT_EQ(known, new_ones) << "before call " << call;
      EXPECT_EQ(SwapStore::directories_of(new_ones[0]), new_ones) << "before call " << call;
    }
    (known == new_ones ? stopped_with_new_ones : stopped_with_old_ones) |= !ended;
    // Started again as it was, or with what one path knows.
    const Directories again = call % 2 == 0 ? new_ones : known;
    EXPECT_TRUE(SwapStore::repair(again, *engine_).problems.empty()) << "before call " << call;
    expect_whole(again, call);
    if (ended) break;
    ASSERT_LT(call, 200);
  }
  EXPECT_TRUE(stopped_with_old_ones && stopped_with_new_ones);
}

TEST_F(RepairFoldersTest, a_repair_of_folders_that_were_moved_records_where_they_are) {
  start_again(1);
  const Directories moved = {path(0), folder_.path("moved"), path(2)};
  fs::rename(path(1), moved[1]);
  EXPECT_TRUE(SwapStore::repair(moved, *engine_).problems.empty());
  expect_whole(moved, 0);
}

TEST_F(RepairFoldersTest, a_folder_that_could_not_be_made_takes_no_ones_place) {
  start_again(1);
  fs::remove_all(path(0));
  EXPECT_EQ(SwapStore::repair({folder_.path("no parent/new"), path(1), path(2)}, *engine_).problems.size(),
            1u);
  EXPECT_EQ(SwapStore::directories_of(path(1)), options(3, 1).directories);
}

TEST_F(RepairFoldersTest, folders_that_are_missing_or_too_many_are_named_with_all_that_are_to_be_given) {
  start_again(1);
  const auto refusal = [&](const Directories& given) {
    return message_of<UsageError>([&] { SwapStore::describe(given); });
  };
  const std::string all = fmt::format("Give all of them: {} {} {}", path(0), path(1), path(2));
  EXPECT_THAT(refusal({path(2), path(0)}),
              AllOf(HasSubstr("has 3 paths, and 2 are given"), HasSubstr(path(1) + " is missing"),
                    HasSubstr(all), Not(HasSubstr("none of them"))));
  EXPECT_THAT(refusal({path(1)}),
              AllOf(HasSubstr(path(0) + " and " + path(2) + " are missing"), HasSubstr(all)));
  EXPECT_THAT(refusal({path(0), path(1), folder_.path("x"), path(2)}),
              AllOf(HasSubstr("4 are given"), HasSubstr(folder_.path("x") + " is none of them"),
                    HasSubstr(all), Not(HasSubstr("missing"))));
}

}  // namespace
}  // namespace headrace::testing
