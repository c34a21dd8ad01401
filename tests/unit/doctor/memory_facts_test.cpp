#include "src/doctor/memory_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_machine.h"
#include "unit/doctor/findings.h"

namespace headrace::doctor {
namespace {

using ::testing::HasSubstr;
using namespace literals;

FakeMachine& sixteen_gib(FakeMachine& machine) {
  return machine
      .with("/proc/meminfo",
            "MemTotal:       16777216 kB\nMemFree:         1000000 kB\nMemAvailable:   12582912 kB\n"
            "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n")
      .with("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
}

std::vector<Finding> findings_on(const FakeMachine& machine, MemoryLock lock = {}) {
  return findings_of(read_memory(MachineFiles(machine.root()), lock));
}

TEST(MemoryFindings, of_a_machine_without_limits_are_all_ok) {
  FakeMachine machine;
  const auto findings = findings_on(sixteen_gib(machine));
  for (const Finding& finding : findings) EXPECT_EQ(finding.status, FindingStatus::ok) << finding.what;
  EXPECT_EQ(line(findings, "available").value, "12.0 GiB of 16.0 GiB");
  EXPECT_EQ(line(findings, "locked memory").value, "unlimited");
}

TEST(MemoryFindings, low_memlock_is_a_limit_with_the_command_that_this_user_can_run) {
  FakeMachine machine;
  sixteen_gib(machine);
  const auto locked = [&](MemoryLock lock) { return line(findings_on(machine, lock), "locked memory"); };
  const Finding fixed = locked({.soft = 64_KiB, .hard = 64_KiB});
  EXPECT_EQ(fixed.status, FindingStatus::limit);
  EXPECT_EQ(fixed.value, "64.0 KiB");
  EXPECT_THAT(fixed.advice, HasSubstr("ask an administrator"));
  EXPECT_THAT(locked({.soft = 64_KiB}).advice, HasSubstr("ulimit -l unlimited"));
  EXPECT_THAT(locked({.soft = 64_KiB, .hard = 2_GiB}).advice, HasSubstr("ulimit -l 2097152"));
  EXPECT_EQ(locked({.soft = 64_KiB, .hard = 64_KiB, .lifted = true}).status, FindingStatus::ok);
}

TEST(MemoryFindings, each_device_s_ring_locks_memory_of_its_own) {
  FakeMachine machine;
  sixteen_gib(machine);
  const auto locked = [&](Bytes limit, std::size_t rings) {
    const MemoryLock lock{.soft = limit, .hard = limit};
    return line(findings_of(read_memory(MachineFiles(machine.root()), lock, rings)), "locked memory");
  };
  EXPECT_EQ(locked(1_GiB, 1).status, FindingStatus::ok);
  EXPECT_EQ(locked(3_GiB, 4).status, FindingStatus::limit);
  EXPECT_THAT(locked(3_GiB, 4).advice, HasSubstr("About 4.00 GiB (1.00 GiB for each of 4 devices)"));
  EXPECT_EQ(locked(4_GiB, 4).status, FindingStatus::ok);
}

TEST(MemoryFindings, capability_that_lifts_memlock_is_read_from_the_process_status) {
  FakeMachine machine;
  machine.with("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
  EXPECT_TRUE(read_memory_lock(MachineFiles(machine.root())).lifted);
  machine.with("/proc/self/status", "CapEff:\t0000000000000000\n");
  EXPECT_FALSE(read_memory_lock(MachineFiles(machine.root())).lifted);
}

TEST(MemoryFindings, cgroup_that_leaves_less_than_the_host_is_a_limit) {
  FakeMachine machine;
  sixteen_gib(machine)
      .with("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
      .with("/proc/self/cgroup", "0::/pod\n")
      .with("/sys/fs/cgroup/pod/memory.max", "8589934592\n")
      .with("/sys/fs/cgroup/pod/memory.current", "1073741824\n");
  const Finding limited = line(findings_on(machine), "cgroup limit");
  EXPECT_EQ(limited.status, FindingStatus::limit);
  EXPECT_EQ(limited.value, "8.00 GiB, 7.00 GiB left");
  machine.with("/sys/fs/cgroup/pod/memory.max", "85899345920\n");
  EXPECT_EQ(line(findings_on(machine), "cgroup limit").status, FindingStatus::ok);
}

TEST(MemoryFindings, huge_pages_switched_off_or_reserved_for_nobody_are_told) {
  FakeMachine machine;
  sixteen_gib(machine)
      .with("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
      .with("/proc/meminfo",
            "MemTotal: 16777216 kB\nMemAvailable: 4000000 kB\nHugePages_Total: 1024\nHugePages_Free: 512\n"
            "Hugepagesize: 2048 kB\n");
  const auto findings = findings_on(machine);
  EXPECT_EQ(line(findings, "transparent huge pages").status, FindingStatus::limit);
  EXPECT_EQ(line(findings, "hugetlb pages").value, "1024 of 2.00 MiB reserved, 1.00 GiB idle");
  EXPECT_EQ(line(findings, "hugetlb pages").status, FindingStatus::note);
  EXPECT_EQ(line(findings, "available").status, FindingStatus::note);
}

TEST(MemoryFindings, of_a_container_that_hides_proc_and_sys_are_unknown) {
  FakeMachine machine;
  const auto findings = findings_on(machine);
  EXPECT_EQ(line(findings, "available").value, "unknown");
  EXPECT_EQ(line(findings, "transparent huge pages").value, "unknown");
  EXPECT_TRUE(every_limit_has_a_remedy(findings));
}

}  // namespace
}  // namespace headrace::doctor
