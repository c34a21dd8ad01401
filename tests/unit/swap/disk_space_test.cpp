#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "headrace/errors.h"
#include "headrace/swap_paths.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using Paths = std::vector<std::string>;

TEST(DiskSpace, is_one_for_the_paths_of_a_file_system_and_another_for_those_of_another) {
  const TemporaryFolder folder;
  const Paths paths = {folder.path("a"), "/proc", folder.path("b")};
  for (const std::size_t own : {0, 2}) std::filesystem::create_directory(paths[own]);
  const Bytes free = std::filesystem::space(paths[0]).available;
  const auto disks = space_by_disk({{paths[0], 100, 10}, {paths[1], 1, 0}, {paths[2], 200, 20}});
  ASSERT_EQ(disks.size(), 2u);
  EXPECT_EQ(disks[0].paths, (Paths{paths[0], paths[2]}));
  EXPECT_EQ(disks[0].needed, 300u);
  EXPECT_LT(disks[0].available, free + (Bytes{1} << 30));
  EXPECT_GT(disks[0].available + (Bytes{1} << 30), free);  // others use the disk meanwhile
  EXPECT_EQ(disks[1].paths, Paths{"/proc"});
  EXPECT_EQ(disks[1].available, 0u);
  EXPECT_FALSE(disks[1].is_enough());
}

TEST(DiskSpace, counts_what_each_path_gives_back) {
  const auto disks = space_by_disk({{"/proc", 5, 3}, {"/proc", 5, 7}});
  ASSERT_EQ(disks.size(), 1u);
  EXPECT_EQ(disks[0].available, 10u);
  EXPECT_TRUE(disks[0].is_enough());
}

TEST(DiskSpace, of_a_path_that_cannot_be_looked_at_is_an_error_or_left_out_by_name) {
  EXPECT_THROW(space_by_disk({{"/proc", 1, 1}, {"/nope", 1, 0}}), IoError);
  Paths unknown;
  const auto disks = space_by_disk({{"/proc", 1, 1}, {"/nope", 1, 0}}, &unknown);
  EXPECT_EQ(unknown, Paths{"/nope"});
  ASSERT_EQ(disks.size(), 1u);
  EXPECT_EQ(disks[0].paths, Paths{"/proc"});
}

}  // namespace
}  // namespace headrace::testing
