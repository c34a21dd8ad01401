#include "src/doctor/parallel_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_machine.h"
#include "unit/doctor/findings.h"

namespace headrace::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParallelFacts with_mpi() {
  ParallelFacts facts;
  facts.mpi = MpiModule{.path = "/usr/lib/headrace/module.so", .library = "Open MPI v5"};
  facts.launcher_path = "/usr/bin/mpirun";
  return facts;
}

TEST(Gpu, that_the_driver_sees_but_this_build_cannot_use_is_a_limit) {
  ParallelFacts facts = with_mpi();
  facts.driver = "550.54";
  facts.gpus = {"NVIDIA H100"};
  facts.device_problem = "this build has no CUDA backend. Build with --preset cuda.";
  const Finding gpu = line(findings_of(facts), "GPU");
  EXPECT_EQ(gpu.status, FindingStatus::limit);
  EXPECT_EQ(gpu.value, "NVIDIA H100 (driver 550.54), not usable");
  EXPECT_EQ(gpu.advice, facts.device_problem);
}

TEST(Gpu, that_nobody_sees_is_a_note_and_one_in_use_is_ok) {
  ParallelFacts facts = with_mpi();
  EXPECT_EQ(line(findings_of(facts), "GPU").status, FindingStatus::note);
  EXPECT_EQ(line(findings_of(facts), "NCCL").status, FindingStatus::note);
  facts.build = {.built = true, .toolkit = "CUDA 12.8", .collectives = "NCCL 2.26.2"};
  facts.device_problem = "this machine has no CUDA device";
  EXPECT_EQ(line(findings_of(facts), "GPU").status, FindingStatus::limit);
  facts.device = DeviceInfo{.name = "NVIDIA H100", .link = "PCIe 5.0 x16", .near = "cores 0-15"};
  facts.device_bytes = Bytes{64} << 30;
  EXPECT_EQ(line(findings_of(facts), "GPU").value,
            "NVIDIA H100, 64.0 GiB for a run, PCIe 5.0 x16, near cores 0-15, CUDA 12.8");
  EXPECT_EQ(line(findings_of(facts), "NCCL").value, "NCCL 2.26.2");
}

TEST(Driver, and_its_gpus_are_read_from_proc) {
  FakeMachine machine;
  machine
      .with("/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n")
      .with("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H100\nIRQ: 1\n");
  const ParallelFacts facts = read_parallel(MachineFiles(machine.root()), "");
  EXPECT_EQ(facts.driver, "550.54.15");
  EXPECT_THAT(facts.gpus, ElementsAre("NVIDIA H100"));
  EXPECT_EQ(facts.launcher_path, "");
}

TEST(Ranks, without_mpi_or_a_launcher_are_told_what_to_install) {
  ParallelFacts facts;
  facts.mpi_problem = "cannot load the MPI module. Install MPI (Debian: openmpi-bin).";
  EXPECT_EQ(line(findings_of(facts), "MPI").status, FindingStatus::limit);
  EXPECT_THAT(line(findings_of(facts), "MPI").advice, HasSubstr("openmpi-bin"));
  EXPECT_EQ(line(findings_of(facts), "launcher").status, FindingStatus::note);
  EXPECT_EQ(line(findings_of(with_mpi()), "MPI").value, "Open MPI v5");
}

TEST(Launcher, is_named_with_this_rank_s_place_and_what_contradicts_itself_is_a_limit) {
  ParallelFacts facts = with_mpi();
  facts.launch = {.rank = 1, .size = 4, .local_rank = 1, .local_size = 2, .launcher = "mpirun"};
  EXPECT_EQ(line(findings_of(facts), "launcher").value, "mpirun: rank 1 of 4, 2 on this host");
  facts.launch_problem = "the launcher mpirun says rank 4 of 4.";
  EXPECT_EQ(line(findings_of(facts), "launcher").status, FindingStatus::limit);
}

}  // namespace
}  // namespace headrace::doctor
