#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "headrace/communicator.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr const char* variables[] = {"OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "PMI_RANK",
                                     "PMI_SIZE",
                                     "MPI_LOCALRANKID",
                                     "MPI_LOCALNRANKS",
                                     "SLURM_PROCID",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_LOCALID",
                                     "SLURM_STEP_TASKS_PER_NODE"};

class LaunchInfoOf : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : variables) ::unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
};

TEST_F(LaunchInfoOf, no_launcher_is_one_rank) {
  const LaunchInfo info = launch_info();
  EXPECT_EQ(info.rank, 0);
  EXPECT_EQ(info.size, 1);
  EXPECT_EQ(info.local_size, 1);
  EXPECT_EQ(info.launcher, "none");
}

TEST_F(LaunchInfoOf, mpirun_gives_rank_and_local_rank) {
  set("OMPI_COMM_WORLD_RANK", "5");
  set("OMPI_COMM_WORLD_SIZE", "8");
  set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  set("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  const LaunchInfo info = launch_info();
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.size, 8);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_size, 4);
  EXPECT_EQ(info.launcher, "mpirun");
}

TEST_F(LaunchInfoOf, torchrun_and_srun_are_known) {
  set("RANK", "1");
  set("WORLD_SIZE", "2");
  EXPECT_EQ(launch_info().launcher, "torchrun");
  SetUp();
  set("SLURM_PROCID", "2");
  set("SLURM_STEP_NUM_TASKS", "6");
  set("SLURM_LOCALID", "0");
  set("SLURM_STEP_TASKS_PER_NODE", "2(x3)");
  const LaunchInfo info = launch_info();
  EXPECT_EQ(info.launcher, "srun");
  EXPECT_EQ(info.size, 6);
  EXPECT_EQ(info.local_size, 2);
}

TEST_F(LaunchInfoOf, a_batch_job_that_starts_one_program_itself_is_one_rank) {
  set("SLURM_PROCID", "0");  // of the batch script; no step, so no number of its tasks
  EXPECT_EQ(launch_info().size, 1);
}

TEST_F(LaunchInfoOf, nonsense_from_a_launcher_is_refused_with_the_variable_named) {
  set("RANK", "x");
  set("WORLD_SIZE", "2");
  try {
    launch_info();
    FAIL() << "did not throw";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("RANK=\"x\""));
  }
  set("RANK", "2");
  EXPECT_THROW(launch_info(), UsageError);
}

}  // namespace
}  // namespace headrace
