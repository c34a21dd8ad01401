#include "src/doctor/uring_facts.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace headrace::doctor {
namespace {

constexpr const char* topic = "input and output";

std::vector<std::string> refused(const std::vector<IoTrial>& trials) {
  std::vector<std::string> names;
  for (const IoTrial& trial : trials)
    if (trial.code != 0) names.push_back(trial.name);
  return names;
}

std::vector<std::string> accepted(const std::vector<IoTrial>& trials) {
  std::vector<std::string> names;
  for (const IoTrial& trial : trials)
    if (trial.code == 0) names.push_back(trial.name);
  return names;
}

Finding kernel(const UringFacts& facts) {
  if (facts.kernel.empty())
    return {topic, "kernel", "unknown", FindingStatus::note, "/proc is not visible here; uname -r may tell."};
  if (at_least(facts.kernel, 6, 1)) return {topic, "kernel", facts.kernel};
  return {topic, "kernel", facts.kernel, FindingStatus::note,
          "From Linux 6.1 on, completions of io_uring do not interrupt the cores that compute, and files "
          "state the "
          "alignment that direct I/O needs. Update when there is a chance to."};
}

Finding ring(const UringFacts& facts) {
  if (facts.probe.code != 0)
    return {topic, "io_uring", fmt::format("refused ({})", std::strerror(facts.probe.code)),
            FindingStatus::limit,
            facts.probe.refusal + " Until then pread and pwrite on threads do its work, more slowly."};
  if (!facts.disabled.empty() && facts.disabled != "0")
    return {topic, "io_uring", "allowed for this user", FindingStatus::note,
            fmt::format(
                "kernel.io_uring_disabled is {}: users without privileges are refused. An administrator can "
                "allow it: sysctl kernel.io_uring_disabled=0",
                facts.disabled)};
  return {topic, "io_uring", fmt::format("allowed, {} operations", facts.probe.known_operations)};
}

Finding operations(const UringFacts& facts) {
  const auto missing = refused(facts.probe.operations);
  if (missing.empty())
    return {topic, "operations", fmt::format("{}", fmt::join(accepted(facts.probe.operations), ", "))};
  return {topic, "operations", fmt::format("without {}", fmt::join(missing, ", ")), FindingStatus::limit,
          "Linux 5.6 or later knows them; until the kernel is updated, threads do the work of io_uring."};
}

Finding flags(const UringFacts& facts) {
  const auto missing = refused(facts.probe.flags), present = accepted(facts.probe.flags);
  Finding finding{topic, "set-up flags",
                  present.empty() ? "none" : fmt::format("{}", fmt::join(present, ", "))};
  if (missing.empty()) return finding;
  finding.status = FindingStatus::note;
  finding.advice = fmt::format(
      "Refused: {}. SQPOLL for ordinary users needs Linux 5.11; a sandbox may refuse them too. They are "
      "options for less latency: transfers work without.",
      fmt::join(missing, ", "));
  return finding;
}

Finding registered(const UringFacts& facts) {
  const UringProbe& probe = facts.probe;
  if (probe.files.code == 0 && probe.buffers.code == 0)
    return {topic, "registered memory",
            facts.lock.allowed() == unlimited_bytes
                ? "files and buffers, without a limit"
                : fmt::format("files and buffers, up to {}", format_bytes(facts.lock.allowed()))};
  Finding finding{topic, "registered memory", "", FindingStatus::limit, ""};
  if (probe.buffers.code == ENOMEM) {
    finding.value = fmt::format("{} of buffers is refused", format_bytes(probe.buffer_bytes));
    finding.advice = fmt::format(
        "It counts as locked memory, of which {} is allowed: raise that (see memory, locked memory). Until "
        "then "
        "the kernel looks up the pages of each transfer anew.",
        format_bytes(facts.lock.allowed()));
    return finding;
  }
  const IoTrial& failed = probe.buffers.code != 0 ? probe.buffers : probe.files;
  finding.value = fmt::format("{} are refused ({})", failed.name, std::strerror(failed.code));
  finding.advice =
      "A sandbox that allows io_uring_setup but not io_uring_register does this: allow both in its profile.";
  return finding;
}

Finding workers(const UringFacts& facts) {
  const int code = facts.probe.workers.code;
  if (code == 0) return {topic, "kernel threads", "started when a transfer blocks"};
  if (code == ETIMEDOUT)
    return {topic, "kernel threads", "not started within a second", FindingStatus::note,
            "Transfers that block, such as writes that make a file longer, wait for them: see whether the "
            "machine is overloaded."};
  return {
      topic, "kernel threads", fmt::format("cannot be started ({})", std::strerror(code)),
      FindingStatus::limit,
      "Transfers that block, such as writes that make a file longer, are made one by one by whoever waits "
      "for them. Raise the limit of threads (see threads and files)."};
}

}  // namespace

bool at_least(const std::string& release, int major, int minor) {
  int found_major = 0, found_minor = 0;
  if (std::sscanf(release.c_str(), "%d.%d", &found_major, &found_minor) < 1) return false;
  return found_major > major || (found_major == major && found_minor >= minor);
}

UringFacts read_uring(const MachineFiles& files, UringProbe probe, const MemoryLock& lock) {
  return {.kernel = files.line("/proc/sys/kernel/osrelease").value_or(""),
          .disabled = files.line("/proc/sys/kernel/io_uring_disabled").value_or(""),
          .probe = std::move(probe),
          .lock = lock};
}

std::vector<Finding> findings_of(const UringFacts& facts) {
  std::vector<Finding> findings = {kernel(facts), ring(facts)};
  if (facts.probe.code != 0) return findings;
  for (const auto& finding : {operations(facts), flags(facts), registered(facts), workers(facts)})
    findings.push_back(finding);
  return findings;
}

nlohmann::ordered_json to_json(const UringFacts& facts) {
  return {{"kernel", facts.kernel},
          {"io_uring", facts.probe.code == 0},
          {"io_uring_operations", accepted(facts.probe.operations)},
          {"io_uring_flags", accepted(facts.probe.flags)},
          {"io_uring_workers", facts.probe.code == 0 && facts.probe.workers.code == 0}};
}

}  // namespace headrace::doctor
