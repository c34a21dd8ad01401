#include "headrace/folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "headrace/errors.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FoldersTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  static std::string problem(const std::string& path) {
    return folder_problem("--path", path, "on the drive to measure");
  }
  const testing::TemporaryFolder folder_;
};

TEST_F(FoldersTest, a_folder_that_can_be_written_has_no_problem) {
  EXPECT_EQ(problem(folder_.path()), "");
  EXPECT_NO_THROW(require_usable_folder("--path", folder_.path(), "on the drive to measure"));
}

TEST_F(FoldersTest, each_problem_names_the_flag_the_path_the_cause_and_what_to_do) {
  std::ofstream(path("file")) << "text";
  fs::create_symlink("nowhere", path("link"));
  const std::string too_long(300, 'x');
  const std::pair<std::string, std::string> cases[] = {{path("missing é"), "does not exist. Create it"},
                                                       {path("file"), "is not a folder"},
                                                       {path("file") + "/below", "does not exist"},
                                                       {path("link"), "dangling link"},
                                                       {path(too_long), "File name too long"}};
  for (const auto& [given, cause] : cases)
    EXPECT_THAT(problem(given), AllOf(HasSubstr("--path " + given), HasSubstr(cause),
                                      HasSubstr("a folder on the drive to measure.")));
  EXPECT_THAT(problem(""), AllOf(HasSubstr("--path"), HasSubstr("empty")));
  EXPECT_THROW(require_usable_folder("--path", path("file"), "there"), UsageError);
}

TEST_F(FoldersTest, one_folder_under_two_names_is_refused) {
  fs::create_directory(path("a"));
  fs::create_directory(path("b"));
  fs::create_symlink("a", path("link"));
  EXPECT_NO_THROW(require_different_folders("--path", {path("a"), path("b")}));
  for (const std::string& other : {path("a"), path("link"), path("b/../a")})
    EXPECT_THROW(require_different_folders("--path", {path("b"), path("a"), other}), UsageError) << other;
  EXPECT_THROW(require_different_folders("--path", {path("gone"), path("gone")}), UsageError);
}

}  // namespace
}  // namespace headrace
