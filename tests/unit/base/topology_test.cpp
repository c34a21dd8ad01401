#include "src/base/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace headrace {
namespace {

// A root folder with the files that the kernel would show.
class FakeRoot {
 public:
  FakeRoot()
      : path_(std::filesystem::temp_directory_path() / ("headrace-topology-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot& with(const std::string& file, const std::string& text) {
    const std::filesystem::path full = path_.string() + file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
    return *this;
  }
  std::optional<double> quota() const { return cgroup_cpu_quota(path_.string()); }

 private:
  std::filesystem::path path_;
};

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

constexpr char v2_mount[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

TEST(CgroupQuota, of_version_2_is_the_tightest_on_the_way_to_the_root) {
  FakeRoot root;
  root.with("/proc/self/mountinfo", v2_mount)
      .with("/proc/self/cgroup", "0::/job/step\n")
      .with("/sys/fs/cgroup/job/cpu.max", "150000 100000\n")
      .with("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(root.quota(), 1.5);
  root.with("/sys/fs/cgroup/job/step/cpu.max", "50000 100000\n");
  EXPECT_EQ(root.quota(), 0.5);
}

TEST(CgroupQuota, of_a_container_that_sees_its_own_cgroup_as_the_root) {
  FakeRoot root;
  root.with("/proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n")
      .with("/proc/self/cgroup", "0::/docker/abc\n")
      .with("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(root.quota(), 3.0);
}

TEST(CgroupQuota, of_version_1_is_quota_by_period_of_the_cpu_controller) {
  FakeRoot root;
  root.with("/proc/self/mountinfo",
            "31 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
            "32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n")
      .with("/proc/self/cgroup", "5:cpuset:/\n4:cpu,cpuacct:/job\n0::/\n")
      .with("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
      .with("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
      .with("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n")
      .with("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(root.quota(), 4.0);
}

TEST(CgroupQuota, is_none_without_cgroups_or_limit) {
  FakeRoot root;
  EXPECT_EQ(root.quota(), std::nullopt);
  root.with("/proc/self/mountinfo", v2_mount)
      .with("/proc/self/cgroup", "0::/\n")
      .with("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(root.quota(), std::nullopt);
}

TEST(LocalRanks, are_read_from_each_launcher) {
  EXPECT_EQ(local_ranks(environment_of({})), 1);
  EXPECT_EQ(local_ranks(environment_of({{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})), 4);
  EXPECT_EQ(local_ranks(environment_of({{"LOCAL_WORLD_SIZE", "8"}})), 8);
  EXPECT_EQ(local_ranks(environment_of({{"LOCAL_WORLD_SIZE", "nonsense"}})), 1);
  const auto slurm_node = [](const char* node) {
    return environment_of({{"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}, {"SLURM_NODEID", node}});
  };
  EXPECT_EQ(local_ranks(slurm_node("0")), 2);
  EXPECT_EQ(local_ranks(slurm_node("2")), 2);
  EXPECT_EQ(local_ranks(slurm_node("3")), 1);
}

TEST(ThreadsPerRank, divide_a_shared_mask_among_the_ranks_and_leave_each_at_least_one) {
  EXPECT_EQ(threads_per_rank({.affinity_cpus = 8}), 8);
  EXPECT_EQ(threads_per_rank({.affinity_cpus = 8, .local_ranks = 3}), 2);
  EXPECT_EQ(threads_per_rank({.affinity_cpus = 2, .local_ranks = 4}), 1);
}

TEST(ThreadsPerRank, do_not_divide_a_mask_that_the_launcher_gave_to_one_rank) {
  EXPECT_EQ(
      threads_per_rank({.host_cpus = 32, .affinity_cpus = 16, .local_ranks = 2, .bound_by_launcher = true}),
      16);
  EXPECT_EQ(
      threads_per_rank({.host_cpus = 8, .affinity_cpus = 1, .local_ranks = 2, .bound_by_launcher = true}), 1);
}

TEST(ThreadsPerRank, divide_a_socket_to_which_several_ranks_were_bound) {
  EXPECT_EQ(
      threads_per_rank({.host_cpus = 32, .affinity_cpus = 16, .local_ranks = 4, .bound_by_launcher = true}),
      8);
}

TEST(ThreadsPerRank, share_a_quota_below_the_mask) {
  EXPECT_EQ(threads_per_rank({.affinity_cpus = 64, .quota_cpus = 4.0}), 4);
  EXPECT_EQ(threads_per_rank({.affinity_cpus = 64, .quota_cpus = 4.0, .local_ranks = 2}), 2);
  EXPECT_EQ(threads_per_rank({.affinity_cpus = 64, .quota_cpus = 0.5}), 1);
  EXPECT_EQ(available_cpus(CpuLimits{.affinity_cpus = 64, .quota_cpus = 2.5}), 3);
  EXPECT_EQ(available_cpus(CpuLimits{.affinity_cpus = 2, .quota_cpus = 8.0}), 2);
}

TEST(CpuLimits, of_this_machine_are_sane) {
  const CpuLimits limits = read_cpu_limits();
  EXPECT_GE(limits.affinity_cpus, 1);
  EXPECT_GE(limits.host_cpus, limits.affinity_cpus);
  EXPECT_GE(limits.local_ranks, 1);
}

}  // namespace
}  // namespace headrace
