#include "headrace/mounts.h"

#include <gtest/gtest.h>

#include "support/fake_machine.h"

namespace headrace {
namespace {

constexpr char list[] =
    "21 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n"
    "22 21 0:40 / /data rw - nfs4 server:/export rw,vers=4.2\n"
    "23 22 259:5 / /data/with\\040space ro,noatime shared:7 master:2 - xfs /dev/nvme1n1 rw,noquota\n"
    "24 21 0:50 / /database rw - tmpfs tmpfs rw\n"
    "25 22 0:51 / /data rw - tmpfs covering rw\n"
    "not a line of this file\n";

TEST(Mounts, are_read_with_escapes_and_whatever_optional_fields) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", list);
  const std::vector<Mount> mounts = read_mounts(machine.root());
  ASSERT_EQ(mounts.size(), 5u);
  EXPECT_EQ(mounts[0].device, "259:2");
  EXPECT_EQ(mounts[0].super_options, "rw,errors=remount-ro");
  EXPECT_EQ(mounts[2].point, "/data/with space");
  EXPECT_EQ(mounts[2].options, "ro,noatime");
  EXPECT_EQ(mounts[2].type, "xfs");
  EXPECT_EQ(mounts[2].source, "/dev/nvme1n1");
}

TEST(Mounts, hold_a_path_by_whole_names_and_the_latest_covers_the_earlier) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", list);
  const std::vector<Mount> mounts = read_mounts(machine.root());
  EXPECT_EQ(mount_of("/home/me", mounts)->source, "/dev/nvme0n1p2");
  EXPECT_EQ(mount_of("/data/swap", mounts)->source, "covering");
  EXPECT_EQ(mount_of("/data/with space/swap", mounts)->source, "/dev/nvme1n1");
  EXPECT_EQ(mount_of("/database", mounts)->source, "tmpfs");
  EXPECT_EQ(mount_of("/databases", mounts)->source, "/dev/nvme0n1p2");
  EXPECT_EQ(mount_of("/anywhere", {}), nullptr);
}

TEST(Mounts, options_are_found_whole) {
  EXPECT_TRUE(has_option("rw,sync,noatime", "sync"));
  EXPECT_TRUE(has_option("ro", "ro"));
  EXPECT_FALSE(has_option("rw,nosync", "sync"));
  EXPECT_FALSE(has_option("", "sync"));
}

}  // namespace
}  // namespace headrace
