#include "headrace/cgroup.h"

#include <gtest/gtest.h>

#include "support/fake_machine.h"

namespace headrace {
namespace {

constexpr char v2_mount[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

TEST(CgroupQuota, of_version_2_is_the_tightest_on_the_way_to_the_root) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", v2_mount)
      .with("/proc/self/cgroup", "0::/job/step\n")
      .with("/sys/fs/cgroup/job/cpu.max", "150000 100000\n")
      .with("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(machine.root()), 1.5);
  machine.with("/sys/fs/cgroup/job/step/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(machine.root()), 0.5);
}

TEST(CgroupQuota, of_a_container_that_sees_its_own_cgroup_as_the_root) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n")
      .with("/proc/self/cgroup", "0::/docker/abc\n")
      .with("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(machine.root()), 3.0);
}

TEST(CgroupQuota, of_version_1_is_quota_by_period_of_the_cpu_controller) {
  FakeMachine machine;
  machine
      .with("/proc/self/mountinfo",
            "31 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
            "32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n")
      .with("/proc/self/cgroup", "5:cpuset:/\n4:cpu,cpuacct:/job\n0::/\n")
      .with("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
      .with("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
      .with("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n")
      .with("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(cgroup_cpu_quota(machine.root()), 4.0);
}

TEST(CgroupQuota, is_none_without_cgroups_or_limit) {
  FakeMachine machine;
  EXPECT_EQ(cgroup_cpu_quota(machine.root()), std::nullopt);
  machine.with("/proc/self/mountinfo", v2_mount)
      .with("/proc/self/cgroup", "0::/\n")
      .with("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(machine.root()), std::nullopt);
}

TEST(CgroupMemory, of_version_2_is_the_level_that_leaves_the_least) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", v2_mount)
      .with("/proc/self/cgroup", "0::/job/step\n")
      .with("/sys/fs/cgroup/job/memory.max", "8000\n")
      .with("/sys/fs/cgroup/job/memory.current", "7500\n")
      .with("/sys/fs/cgroup/job/step/memory.max", "4000\n")
      .with("/sys/fs/cgroup/job/step/memory.current", "1000\n");
  const auto memory = cgroup_memory(machine.root());
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->limit, 8000u);
  EXPECT_EQ(memory->left(), 500u);
}

// The kernel reclaims it before it kills: a run that has read or written large files would else see its own
// page cache as memory that is taken.
TEST(CgroupMemory, of_files_that_nobody_uses_counts_as_left) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", v2_mount)
      .with("/proc/self/cgroup", "0::/job\n")
      .with("/sys/fs/cgroup/job/memory.max", "8000\n")
      .with("/sys/fs/cgroup/job/memory.current", "7500\n")
      .with("/sys/fs/cgroup/job/memory.stat",
            "anon 2000\nfile 5500\nactive_file 1500\ninactive_file 4000\nworkingset_refault_file 9\n");
  const auto memory = cgroup_memory(machine.root());
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->used, 7500u);
  EXPECT_EQ(memory->left(), 4500u);
}

TEST(CgroupMemory, of_version_1_counts_the_files_of_the_groups_below) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
      .with("/proc/self/cgroup", "4:memory:/\n")
      .with("/sys/fs/cgroup/memory/memory.limit_in_bytes", "6000\n")
      .with("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n")
      .with("/sys/fs/cgroup/memory/memory.stat", "inactive_file 100\ntotal_inactive_file 3000\n");
  const auto memory = cgroup_memory(machine.root());
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->left(), 4000u);
}

// The files are read one after the other, and a job changes them meanwhile.
TEST(CgroupMemory, that_says_more_is_reclaimable_than_used_leaves_no_more_than_its_limit) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", v2_mount)
      .with("/proc/self/cgroup", "0::/\n")
      .with("/sys/fs/cgroup/memory.max", "8000\n")
      .with("/sys/fs/cgroup/memory.current", "100\n")
      .with("/sys/fs/cgroup/memory.stat", "inactive_file 400\n");
  EXPECT_EQ(cgroup_memory(machine.root())->left(), 8000u);
}

TEST(CgroupMemory, of_version_1_is_found_below_the_process_s_own_path) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
      .with("/proc/self/cgroup", "4:memory:/job\n")
      .with("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
      .with("/sys/fs/cgroup/memory/memory.usage_in_bytes", "10\n")
      .with("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "6000\n")
      .with("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "7000\n");
  const auto memory = cgroup_memory(machine.root());
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->limit, 6000u);
  EXPECT_EQ(memory->left(), 0u);
}

TEST(CgroupMemory, is_none_without_cgroups_or_limit) {
  FakeMachine machine;
  EXPECT_FALSE(cgroup_memory(machine.root()));
  machine.with("/proc/self/mountinfo", v2_mount)
      .with("/proc/self/cgroup", "0::/\n")
      .with("/sys/fs/cgroup/memory.max", "max\n")
      .with("/sys/fs/cgroup/memory.current", "10\n");
  EXPECT_FALSE(cgroup_memory(machine.root()));
}

}  // namespace
}  // namespace headrace
