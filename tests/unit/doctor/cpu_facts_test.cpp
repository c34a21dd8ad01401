#include "src/doctor/cpu_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_machine.h"
#include "unit/doctor/findings.h"

namespace headrace::doctor {
namespace {

using ::testing::HasSubstr;

const std::vector<NumaNode> one_node = {{.index = 0, .cpus = "0-7", .memory_bytes = Bytes{1} << 34}};
const std::vector<NumaNode> two_nodes = {{.index = 0, .cpus = "0-3", .memory_bytes = Bytes{1} << 33},
                                         {.index = 1, .cpus = "4-7", .memory_bytes = Bytes{1} << 33}};

FakeMachine& eight_cores(FakeMachine& machine) {
  return machine
      .with("/proc/cpuinfo",
            "processor : 0\nmodel name\t: Some CPU @ 2.0GHz\nflags\t\t: fpu sse avx2 avx512_bf16\n")
      .with("/sys/devices/system/cpu/present", "0-7\n")
      .with("/sys/devices/system/cpu/online", "0-7\n")
      .with("/sys/devices/system/cpu/offline", "\n");
}

CpuFacts facts_of(const FakeMachine& machine, CpuLimits limits, std::vector<NumaNode> nodes = one_node) {
  return read_cpu(MachineFiles(machine.root()), limits, std::move(nodes));
}

TEST(Processor, that_is_whole_has_no_limit) {
  FakeMachine machine;
  CpuFacts facts = facts_of(eight_cores(machine), {.host_cpus = 8, .affinity_cpus = 8});
  facts.used = facts.widest = Isa::avx512;
  const auto findings = findings_of(facts);
  for (const Finding& finding : findings) EXPECT_EQ(finding.status, FindingStatus::ok) << finding.what;
  EXPECT_EQ(line(findings, "model").value, "Some CPU @ 2.0GHz");
  EXPECT_EQ(line(findings, "cores").value, "8 online");
  EXPECT_EQ(line(findings, "bf16 arithmetic").value, "avx512_bf16");
}

TEST(Processor, cores_that_are_offline_are_named) {
  FakeMachine machine;
  eight_cores(machine)
      .with("/sys/devices/system/cpu/online", "0-3,6\n")
      .with("/sys/devices/system/cpu/offline", "4-5,7\n");
  const auto findings = findings_of(facts_of(machine, {.host_cpus = 5, .affinity_cpus = 5}));
  const Finding& cores = line(findings, "cores");
  EXPECT_EQ(cores.status, FindingStatus::note);
  EXPECT_EQ(cores.value, "5 online of 8 (4-5,7 offline)");
  EXPECT_EQ(line(findings, "affinity mask").status, FindingStatus::ok);  // all that are online
}

TEST(Processor, narrow_mask_is_a_limit_but_not_when_the_launcher_gave_it) {
  FakeMachine machine;
  eight_cores(machine);
  EXPECT_EQ(
      line(findings_of(facts_of(machine, {.host_cpus = 2, .affinity_cpus = 2})), "affinity mask").status,
      FindingStatus::limit);
  const CpuLimits bound{.host_cpus = 8, .affinity_cpus = 2, .local_ranks = 4, .bound_by_launcher = true};
  EXPECT_EQ(line(findings_of(facts_of(machine, bound)), "affinity mask").status, FindingStatus::note);
}

TEST(Processor, quota_below_the_mask_is_a_limit_and_one_above_it_is_not) {
  FakeMachine machine;
  eight_cores(machine);
  const auto quota = [&](double cpus) {
    return line(findings_of(facts_of(machine, {.host_cpus = 8, .affinity_cpus = 8, .quota_cpus = cpus})),
                "cgroup quota");
  };
  EXPECT_EQ(quota(2.5).status, FindingStatus::limit);
  EXPECT_EQ(quota(2.5).value, "2.50 CPUs of time");
  EXPECT_THAT(quota(2.5).advice, HasSubstr("3 of 8 CPUs are used"));
  EXPECT_EQ(quota(16).status, FindingStatus::ok);
}

TEST(Processor, more_ranks_than_cpus_are_a_limit) {
  FakeMachine machine;
  eight_cores(machine);
  const auto findings =
      findings_of(facts_of(machine, {.host_cpus = 8, .affinity_cpus = 8, .local_ranks = 9}));
  EXPECT_EQ(line(findings, "threads").status, FindingStatus::limit);
}

TEST(Processor, two_numa_nodes_are_described_with_how_to_bind_to_one) {
  FakeMachine machine;
  const auto findings =
      findings_of(facts_of(eight_cores(machine), {.host_cpus = 8, .affinity_cpus = 8}, two_nodes));
  EXPECT_EQ(line(findings, "NUMA").value,
            "2 nodes (node 0: cores 0-3, 8.00 GiB; node 1: cores 4-7, 8.00 GiB)");
  EXPECT_THAT(line(findings, "NUMA").advice, HasSubstr("--bind-to numa"));
}

TEST(Processor, threads_of_two_numa_nodes_are_said_to_be_bound_to_them) {
  FakeMachine machine;
  eight_cores(machine);
  CpuLimits limits{.host_cpus = 8, .affinity_cpus = 8, .quota_cpus = 3.0};
  limits.affinity = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(line(findings_of(facts_of(machine, limits, two_nodes)), "threads").value,
            "3 a rank, 1 rank on this host; bound to node 0: 2 threads, node 1: 1 thread");
  EXPECT_EQ(line(findings_of(facts_of(machine, limits)), "threads").value, "3 a rank, 1 rank on this host");
}

TEST(Processor, instructions_that_are_narrowed_missing_or_asked_for_in_vain_are_told_apart) {
  CpuFacts facts;
  facts.widest = Isa::avx512;
  facts.used = Isa::avx2;
  EXPECT_EQ(line(findings_of(facts), "instructions").status, FindingStatus::note);
  EXPECT_THAT(line(findings_of(facts), "instructions").advice, HasSubstr("HEADRACE_ISA"));
  facts.widest = facts.used = Isa::scalar;
  EXPECT_EQ(line(findings_of(facts), "instructions").status, FindingStatus::limit);
  facts.isa_problem = "HEADRACE_ISA=avx1024 is unknown";
  EXPECT_EQ(line(findings_of(facts), "instructions").advice, facts.isa_problem);
}

TEST(Processor, of_a_container_without_sys_or_proc_is_unknown_and_nothing_fails) {
  FakeMachine machine;
  const CpuFacts facts = facts_of(machine, {.host_cpus = 4, .affinity_cpus = 4}, {});
  const auto findings = findings_of(facts);
  EXPECT_EQ(line(findings, "model").value, "unknown");
  EXPECT_EQ(line(findings, "cores").value, "unknown");
  EXPECT_EQ(line(findings, "NUMA").value, "unknown");
  EXPECT_TRUE(every_limit_has_a_remedy(findings));
  EXPECT_EQ(to_json(facts)["cpus"], 4);
}

TEST(Processor, lists_of_cores_are_counted) {
  EXPECT_EQ(count_of(""), 0);
  EXPECT_EQ(count_of("5"), 1);
  EXPECT_EQ(count_of("0-3,8,10-11"), 7);
}

}  // namespace
}  // namespace headrace::doctor
