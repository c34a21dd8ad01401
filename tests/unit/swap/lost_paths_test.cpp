// What is said about paths that are lost: why, each its own cause, and how they come back.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/support/power_loss/syscall_hook.h"
#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class LostPathsTest : public SwapPathsTest {
 protected:
  // What is told while `action` runs.
  template <class Action>
  std::string told_by(const Action& action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LostPathsTest, too_many_lost_paths_are_told_each_with_its_own_cause_and_none_is_invented) {
  const auto store = create(options(4, 1));
  commit_and_release(*store, 1);
  fail(0, IoDirection::write, EROFS);
  fail(2, IoDirection::write, ENXIO);
  try {
    commit_and_release(*store, 2);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const IoError& error) {
    const std::string said = error.what();
    EXPECT_THAT(said, AllOf(HasSubstr(path(0) + " (writing: Read-only file system)"),
                            HasSubstr(path(2) + " (writing: No such device or address)")));
    EXPECT_THAT(said, Not(HasSubstr("Input/output error")));
    EXPECT_THAT(error.code(), AnyOf(EROFS, ENXIO));
  }
}

// How a path's folder vanishes, and how that is told.
struct Vanished {
  const char* name;
  void (*action)(const std::string& folder);
  const char* told;
};
class VanishedTest : public LostPathsTest, public ::testing::WithParamInterface<Vanished> {};
const Vanished vanished[] = {
    {"removed", [](const std::string& folder) { fs::remove_all(folder); }, "was removed"},
    {"not_a_folder",
     [](const std::string& folder) {
       fs::remove_all(folder);
       std::ofstream(folder) << "a file";
     },
     "cannot be looked at: Not a directory"},
    {"a_loop_of_links",
     [](const std::string& folder) {
       fs::remove_all(folder);
       fs::create_symlink(folder, folder);
     },
     "cannot be looked at: Too many levels of symbolic links"},
    {"replaced",
     [](const std::string& folder) {
       fs::copy(folder, folder + ".copy");
       fs::rename(folder, folder + ".away");
       fs::rename(folder + ".copy", folder);
     },
     "was replaced by another file"},
};
INSTANTIATE_TEST_SUITE_P(Ways, VanishedTest, ::testing::ValuesIn(vanished),
                         [](const ::testing::TestParamInfo<Vanished>& way) { return way.param.name; });

TEST_P(VanishedTest, only_what_is_gone_is_called_removed_and_all_else_by_what_the_system_says) {
  for (const std::uint32_t parity : {1u, 0u}) {
    const auto store = create(options(3, parity));
    commit_and_release(*store, 1);
    write_together(*store, 2);
    GetParam().action(path(2));
    std::string said;
    if (parity > 0)
      said = told_by([&] { store->commit({2, ""}); });
    else
      said = message_of<IoError>([&] { store->commit({2, ""}); });
    EXPECT_THAT(said, AllOf(HasSubstr(path(2) + "/extents.bin"), HasSubstr(GetParam().told)));
    EXPECT_EQ(said.find("removed") != std::string::npos, std::string_view(GetParam().told) == "was removed");
    EXPECT_THAT(said, Not(HasSubstr("No such file")));
    for (const std::string& name : folder_.names()) fs::remove_all(folder_.path(name));
  }
}

TEST_F(LostPathsTest,
       the_command_that_brings_a_path_back_makes_its_folder_and_quotes_what_a_shell_would_split) {
  SwapStoreOptions there = options(3, 1);
  fs::create_directory(folder_.path("drive one"));
  there.directories[1] = folder_.path("drive one/it's");
  const std::string quoted = fmt::format("'{}/drive one/it'\\''s'", folder_.path());
  const std::string command =
      fmt::format("`mkdir -p {} && headrace inspect --repair {} {} {}`", quoted, path(0), quoted, path(2));
  {
    const auto store = create(there);
    commit_and_release(*store, 1);
    fs::remove_all(folder_.path("drive one"));
    EXPECT_THAT(told_by([&] { commit_and_release(*store, 2); }), HasSubstr(command));
  }
  EXPECT_THAT(told_by([&] { open(there); }), HasSubstr(command));
}

// A command that makes folders would fill the drive below an empty mount point.
TEST_F(LostPathsTest, a_drive_is_asked_for_before_the_command_and_no_folder_is_made_that_is_there) {
  const std::string command = fmt::format("headrace inspect --repair {} {} {}`", path(0), path(1), path(2));
  for (const std::string name : {"", "store.json", "journal.bin", "extents.bin"}) {
    { commit_and_release(*create(options(3, 1)), 1); }
    fs::remove_all(path(1) + "/" + name);
    const std::string told = told_by([&] { open(options(3, 1)); });
    const std::string advice =
        name.empty() ? fmt::format("mount its drive; where that is gone for good, `mkdir -p {} && ", path(1))
                     : "after it: `";
    EXPECT_THAT(told, HasSubstr(advice + command)) << name;
    for (const std::string& each : folder_.names()) fs::remove_all(folder_.path(each));
  }
  { commit_and_release(*create(options(3, 1)), 1); }
  for (const auto& entry : fs::directory_iterator(path(1))) fs::remove(entry);
  EXPECT_THAT(told_by([&] { open(options(3, 1)); }),
              AllOf(HasSubstr("mount its drive"), HasSubstr(command), Not(HasSubstr("mkdir"))));
}

// What is wrong is one thing, what to do about it depends on the parity: the two never contradict.
TEST_F(LostPathsTest,
       a_broken_file_is_restored_or_the_run_started_anew_where_there_is_no_parity_and_only_there) {
  const std::pair<const char*, void (*)(const std::string&)> ways[] = {
      {"store.json", [](const std::string& file) { std::ofstream(file) << "{"; }},
      {"journal.bin", [](const std::string& file) { fs::remove(file); }},
      {"journal.bin", [](const std::string& file) { flip_bit(file, 1536 + 40); }},
      {"extents.bin", [](const std::string& file) { fs::remove(file); }},
      {"extents.bin", [](const std::string& file) { fs::resize_file(file, 4096); }}};
  for (const auto& [name, damage] : ways)
    for (const std::uint32_t paths : {1u, 3u}) {
      const SwapStoreOptions there = options(paths, paths == 1 ? 0 : 1);
      {
        const auto store = create(there);
        for (const std::uint64_t step : {1, 2}) commit_and_release(*store, step);
      }
      damage(path(0) + "/" + name);
      const std::string said =
          paths == 1 ? message_of<Error>([&] { open(there); }) : told_by([&] { open(there); });
      EXPECT_THAT(said, AllOf(HasSubstr(path(0) + "/" + name), Not(HasSubstr("(0 bytes)"))));
      EXPECT_EQ(
          said.find("estore the file, or start the run anew with --overwrite-swap") != std::string::npos,
          paths == 1)
          << said;
      EXPECT_EQ(said.find("--repair") != std::string::npos, paths == 3) << said;
      for (const std::string& each : folder_.names()) fs::remove_all(folder_.path(each));
    }
}

// The lock file of a path that looks good cannot be opened.
struct Unlockable {
  const char* name;
  void (*action)(const std::string& lock);
};
class UnlockableTest : public LostPathsTest, public ::testing::WithParamInterface<Unlockable> {};
const Unlockable unlockable[] = {
    {"a_folder", [](const std::string& lock) { fs::create_directory(lock); }},
    {"a_dangling_link", [](const std::string& lock) { fs::create_symlink("/gone/for/good", lock); }},
    {"refused", [](const std::string&) {}},  // by the hook
};
INSTANTIATE_TEST_SUITE_P(Ways, UnlockableTest, ::testing::ValuesIn(unlockable),
                         [](const ::testing::TestParamInfo<Unlockable>& way) { return way.param.name; });

TEST_P(UnlockableTest, a_path_whose_lock_cannot_be_opened_is_lost_by_parity_and_an_error_without) {
  for (const std::uint32_t parity : {1u, 0u}) {
    { commit_and_release(*create(options(3, parity)), 1); }
    const std::string lock = path(1) + "/lock";
    fs::remove(lock);
    GetParam().action(lock);
    const SyscallHook hook(folder_.path(), failing(FileCall::create, "p1/lock", EACCES, 0, 100));
    if (parity == 0) {
      EXPECT_THAT(message_of<UsageError>([&] { open(options(3)); }),
                  AllOf(HasSubstr(lock), HasSubstr("permissions")));
    } else {
      const std::string told = told_by([&] {
        const auto store = open(options(3, 1));
        EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(1)});
        EXPECT_TRUE(holds_step(*store, 1));
        commit_and_release(*store, 2);
      });
      EXPECT_EQ(told.find("warning"), told.rfind("warning")) << told;
      EXPECT_THAT(told, HasSubstr(lock));
    }
    for (const std::string& name : folder_.names()) fs::remove_all(folder_.path(name));
  }
}

TEST_F(LostPathsTest, a_live_owner_is_refused_whatever_became_of_one_of_its_locks) {
  const auto owner = create(options(3, 1));
  commit_and_release(*owner, 1);
  fs::remove(path(1) + "/lock");
  fs::create_directory(path(1) + "/lock");
  EXPECT_THAT(message_of<UsageError>([&] { open(options(3, 1)); }), HasSubstr("in use by process"));
  commit_and_release(*owner, 2);
  EXPECT_TRUE(holds_step(*owner, 2));
}

TEST_F(LostPathsTest, more_locks_than_parity_that_cannot_be_opened_are_named) {
  { commit_and_release(*create(options(3, 1)), 1); }
  for (const std::uint32_t p : {0u, 2u}) {
    fs::remove(path(p) + "/lock");
    fs::create_directory(path(p) + "/lock");
  }
  EXPECT_THAT(message_of<Error>([&] { open(options(3, 1)); }),
              AllOf(HasSubstr(path(0) + "/lock"), HasSubstr(path(2) + "/lock"), Not(HasSubstr(path(1)))));
}

}  // namespace
}  // namespace headrace::testing
