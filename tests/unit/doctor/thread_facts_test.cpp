#include "src/doctor/thread_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "support/fake_machine.h"
#include "unit/doctor/findings.h"

namespace headrace::doctor {
namespace {

using ::testing::HasSubstr;

ThreadFacts facts_on(const FakeMachine& machine) {
  return read_threads(MachineFiles(machine.root()), 4);
}

TEST(ThreadFindings, of_a_machine_without_limits_are_all_ok) {
  const auto findings = findings_of(ThreadFacts{.cpus = 64});
  for (const Finding& finding : findings) EXPECT_EQ(finding.status, FindingStatus::ok) << finding.what;
  EXPECT_EQ(line(findings, "threads of this user").value, "unlimited, use unknown");
  EXPECT_EQ(line(findings, "threads of the cgroup").value, "without a limit");
}

TEST(ThreadFindings, limit_that_is_near_comes_with_the_command_that_this_user_can_run) {
  const auto threads = [](CountLimit limit, bool lifted = false) {
    return line(findings_of(ThreadFacts{.cpus = 4, .user = limit, .lifted = lifted}), "threads of this user");
  };
  EXPECT_EQ(threads({.soft = 1000, .hard = 1000, .used = 900}).status, FindingStatus::ok);
  const Finding near = threads({.soft = 1000, .hard = 1000, .used = 950});
  EXPECT_EQ(near.status, FindingStatus::limit);
  EXPECT_EQ(near.value, "1000, 950 in use");
  EXPECT_THAT(near.advice, HasSubstr("ask an administrator"));
  EXPECT_THAT(threads({.soft = 1000, .hard = 5000, .used = 950}).advice, HasSubstr("ulimit -u 5000"));
  EXPECT_THAT(threads({.soft = 1000, .used = 950}).advice, HasSubstr("ulimit -u 1022"));
  EXPECT_EQ(threads({.soft = 10, .hard = 10, .used = 2000}).status, FindingStatus::limit);
  EXPECT_EQ(threads({.soft = 10, .hard = 10, .used = 2000}, true).status, FindingStatus::ok);
}

TEST(ThreadFindings, more_cpus_need_more_threads) {
  const auto status = [](int cpus) {
    const ThreadFacts facts{.cpus = cpus, .user = {.soft = 300, .hard = 300, .used = 100}};
    return line(findings_of(facts), "threads of this user").status;
  };
  EXPECT_EQ(status(4), FindingStatus::ok);
  EXPECT_EQ(status(128), FindingStatus::limit);
}

TEST(ThreadFindings, few_open_files_are_a_limit) {
  const ThreadFacts facts{.files = {.soft = 256, .hard = 4096, .used = 5}};
  const Finding files = line(findings_of(facts), "open files");
  EXPECT_EQ(files.status, FindingStatus::limit);
  EXPECT_EQ(files.value, "256, 5 in use");
  EXPECT_THAT(files.advice, HasSubstr("ulimit -n 4096"));
}

TEST(ThreadFindings, cgroup_of_version_2_that_leaves_the_fewest_is_the_limit) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
      .with("/proc/self/cgroup", "0::/pod/job\n")
      .with("/sys/fs/cgroup/pod/pids.max", "100\n")
      .with("/sys/fs/cgroup/pod/pids.current", "90\n")
      .with("/sys/fs/cgroup/pod/job/pids.max", "50\n")
      .with("/sys/fs/cgroup/pod/job/pids.current", "20\n");
  const Finding cgroup = line(findings_of(facts_on(machine)), "threads of the cgroup");
  EXPECT_EQ(cgroup.value, "100, 90 in use");
  EXPECT_EQ(cgroup.status, FindingStatus::limit);
  EXPECT_THAT(cgroup.advice, HasSubstr("pids.max"));
  machine.with("/sys/fs/cgroup/pod/pids.max", "max\n").with("/sys/fs/cgroup/pod/job/pids.max", "4000\n");
  EXPECT_EQ(line(findings_of(facts_on(machine)), "threads of the cgroup").value, "4000, 20 in use");
  EXPECT_EQ(line(findings_of(facts_on(machine)), "threads of the cgroup").status, FindingStatus::ok);
}

TEST(ThreadFindings, cgroup_of_version_1_and_of_a_container_that_sees_its_own_as_the_root) {
  FakeMachine machine;
  machine
      .with("/proc/self/mountinfo",
            "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "32 25 0:28 /docker/abc /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n")
      .with("/proc/self/cgroup", "5:memory:/docker/abc\n4:pids:/docker/abc\n0::/\n")
      .with("/sys/fs/cgroup/memory/pids.max", "1\n")
      .with("/sys/fs/cgroup/pids/pids.max", "70\n")
      .with("/sys/fs/cgroup/pids/pids.current", "3\n");
  EXPECT_EQ(line(findings_of(facts_on(machine)), "threads of the cgroup").value, "70, 3 in use");
}

TEST(ThreadFindings, threads_of_all_processes_of_this_user_are_counted) {
  FakeMachine machine;
  const std::string me = std::to_string(::getuid()), other = std::to_string(::getuid() + 1);
  machine.with("/proc/1/status", "Name:\tinit\nUid:\t" + other + "\t0\t0\t0\nThreads:\t7\n")
      .with("/proc/20/status", "Uid:\t" + me + "\t0\t0\t0\nThreads:\t5\n")
      .with("/proc/300/status", "Uid:\t" + me + "\t0\t0\t0\nThreads:\t11\n")
      .with("/proc/self/status", "Uid:\t" + me + "\t0\t0\t0\nThreads:\t5\n");
  EXPECT_EQ(facts_on(machine).user.used, 16u);
}

TEST(ThreadFindings, of_a_container_that_hides_proc_are_unknown_and_no_error) {
  FakeMachine machine;
  const ThreadFacts facts = facts_on(machine);
  EXPECT_FALSE(facts.user.used);
  EXPECT_FALSE(facts.cgroup);
  EXPECT_TRUE(every_limit_has_a_remedy(findings_of(facts)));
}

TEST(ThreadFindings, of_this_process_count_it) {
  const ThreadFacts facts = read_threads(MachineFiles(), 1);
  EXPECT_GE(facts.user.used.value_or(0), 1u);
  EXPECT_GE(facts.files.used.value_or(0), 3u);
}

}  // namespace
}  // namespace headrace::doctor
