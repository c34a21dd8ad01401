#include "src/doctor/uring_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "support/fake_machine.h"
#include "unit/doctor/findings.h"

namespace headrace::doctor {
namespace {

using ::testing::HasSubstr;
using namespace literals;

UringProbe everything() {
  UringProbe probe;
  probe.flags = {{"IOPOLL", 0}, {"SQPOLL", 0}};
  probe.operations = {{"READ", 0}, {"WRITE", 0}};
  probe.known_operations = 60;
  probe.files = {"files", 0};
  probe.buffers = {"buffers", 0};
  probe.buffer_bytes = 1_MiB;
  return probe;
}

FakeMachine& new_kernel(FakeMachine& machine) {
  return machine.with("/proc/sys/kernel/osrelease", "6.8.0-40-generic\n")
      .with("/proc/sys/kernel/io_uring_disabled", "0\n");
}

std::vector<Finding> findings_on(const FakeMachine& machine, const UringProbe& probe, MemoryLock lock = {}) {
  return findings_of(read_uring(MachineFiles(machine.root()), probe, lock));
}

TEST(UringFindings, of_a_new_kernel_are_all_ok) {
  FakeMachine machine;
  for (const Finding& finding : findings_on(new_kernel(machine), everything()))
    EXPECT_EQ(finding.status, FindingStatus::ok) << finding.what;
}

TEST(UringFindings, refusal_ends_with_cause_and_remedy_and_without_details_that_nobody_could_see) {
  FakeMachine machine;
  UringProbe probe;
  probe.code = EPERM;
  probe.refusal = "the setting kernel.io_uring_disabled is 2. An administrator can allow it.";
  const auto findings =
      findings_on(new_kernel(machine).with("/proc/sys/kernel/io_uring_disabled", "2\n"), probe);
  EXPECT_EQ(line(findings, "io_uring").status, FindingStatus::limit);
  EXPECT_EQ(line(findings, "io_uring").value, "refused (Operation not permitted)");
  EXPECT_THAT(line(findings, "io_uring").advice, HasSubstr("io_uring_disabled is 2"));
  EXPECT_THAT(line(findings, "io_uring").advice, HasSubstr("threads"));
  EXPECT_FALSE(has_line(findings, "operations"));
}

TEST(UringFindings, setting_that_refuses_others_is_noted_where_this_user_may) {
  FakeMachine machine;
  new_kernel(machine).with("/proc/sys/kernel/io_uring_disabled", "1\n");
  EXPECT_EQ(line(findings_on(machine, everything()), "io_uring").status, FindingStatus::note);
}

TEST(UringFindings, old_kernel_lacks_flags_and_operations_by_name) {
  FakeMachine machine;
  machine.with("/proc/sys/kernel/osrelease", "5.4.0\n");
  UringProbe probe = everything();
  probe.flags = {{"SQPOLL", EPERM}, {"IOPOLL", 0}};
  probe.operations = {{"READ", ENOSYS}, {"READ_FIXED", 0}};
  const auto findings = findings_on(machine, probe);
  EXPECT_EQ(line(findings, "kernel").status, FindingStatus::note);
  EXPECT_EQ(line(findings, "operations").value, "without READ");
  EXPECT_EQ(line(findings, "operations").status, FindingStatus::limit);
  EXPECT_EQ(line(findings, "set-up flags").value, "IOPOLL");
  EXPECT_THAT(line(findings, "set-up flags").advice, HasSubstr("Refused: SQPOLL."));
}

TEST(UringFindings, buffers_refused_for_memlock_name_the_limit) {
  FakeMachine machine;
  UringProbe probe = everything();
  probe.buffers.code = ENOMEM;
  const auto findings = findings_on(new_kernel(machine), probe, {.soft = 64_KiB, .hard = 64_KiB});
  EXPECT_EQ(line(findings, "registered memory").status, FindingStatus::limit);
  EXPECT_THAT(line(findings, "registered memory").advice, HasSubstr("64.0 KiB"));
  probe.buffers.code = 0;
  probe.files.code = EPERM;
  EXPECT_THAT(line(findings_on(machine, probe), "registered memory").advice, HasSubstr("io_uring_register"));
}

TEST(UringFindings, kernel_that_can_start_no_thread_is_a_limit_and_one_that_is_slow_a_note) {
  FakeMachine machine;
  UringProbe probe = everything();
  const auto threads = [&](int code) {
    probe.workers.code = code;
    return line(findings_on(new_kernel(machine), probe), "kernel threads");
  };
  EXPECT_EQ(threads(0).status, FindingStatus::ok);
  EXPECT_EQ(threads(ECANCELED).status, FindingStatus::limit);
  EXPECT_THAT(threads(ECANCELED).advice, HasSubstr("threads and files"));
  EXPECT_EQ(threads(ETIMEDOUT).status, FindingStatus::note);
}

TEST(UringFindings, releases_are_compared_by_number) {
  EXPECT_TRUE(at_least("6.1.0-18-amd64", 6, 1));
  EXPECT_TRUE(at_least("10.0", 6, 1));
  EXPECT_TRUE(at_least("6.18.44", 6, 2));
  EXPECT_FALSE(at_least("5.19.17", 6, 1));
  EXPECT_FALSE(at_least("", 5, 6));
}

TEST(UringProbe, of_this_machine_either_is_refused_with_a_reason_or_knows_reads_and_writes) {
  const UringProbe probe = probe_uring();
  if (probe.code != 0) {
    EXPECT_THAT(probe.refusal, HasSubstr("io_uring"));
    return;
  }
  EXPECT_GT(probe.known_operations, 0);
  ASSERT_EQ(probe.operations.size(), 4u);
  EXPECT_EQ(probe.operations.front().name, "READ");
  EXPECT_EQ(probe.operations.front().code, 0);
}

}  // namespace
}  // namespace headrace::doctor
