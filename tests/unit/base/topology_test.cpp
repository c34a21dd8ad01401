#include "headrace/topology.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace headrace {
namespace {

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
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

TEST(LocalRank, is_read_from_each_launcher) {
  EXPECT_EQ(local_rank(environment_of({})), 0);
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID"})
    EXPECT_EQ(local_rank(environment_of({{name, "3"}})), 3) << name;
  EXPECT_EQ(local_rank(environment_of({{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"LOCAL_RANK", "3"}})), 0);
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
  EXPECT_EQ(static_cast<std::size_t>(limits.affinity_cpus), limits.affinity.size());
  EXPECT_GE(limits.host_cpus, limits.affinity_cpus);
  EXPECT_GE(limits.local_ranks, 1);
}

}  // namespace
}  // namespace headrace
