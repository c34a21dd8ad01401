#include "headrace/files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

TEST(FilesTest, an_absolute_path_is_one_whether_its_folders_are_there_or_not) {
  const fs::path here = fs::current_path();
  EXPECT_EQ(files::absolute("no-such-folder/below/"), (here / "no-such-folder/below").string());
  EXPECT_EQ(files::absolute("./"), fs::canonical(here).string());
  const testing::TemporaryFolder folder;
  fs::create_directory_symlink(folder.path(), folder.path("link"));
  EXPECT_EQ(files::absolute(folder.path("link/../missing")),
            (fs::canonical(folder.path()).parent_path() / "missing").string());
}

}  // namespace
}  // namespace headrace
