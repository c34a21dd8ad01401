#include "src/doctor/memory_facts.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>

namespace headrace::doctor {
namespace {

using namespace literals;

constexpr const char* topic = "memory";
constexpr Bytes staging_bytes = 1_GiB;  // what a rank with states on NVMe likes to have locked by a ring

std::optional<Bytes> kibibytes(const MachineFiles& files, const char* key) {
  const auto value = files.count_of("/proc/meminfo", key);
  return value ? std::optional(*value << 10) : std::nullopt;
}

std::string limit_text(Bytes bytes) {
  return bytes == unlimited_bytes ? "unlimited" : format_bytes(bytes);
}

Finding available(const MemoryFacts& facts) {
  if (!facts.total || !facts.available)
    return {
        topic, "available", "unknown", FindingStatus::note,
        "/proc/meminfo is not visible here: give a run its limits with --host-memory and --device-memory."};
  Finding finding{topic, "available",
                  fmt::format("{} of {}", format_bytes(*facts.available), format_bytes(*facts.total))};
  if (*facts.available < *facts.total / 2) {
    finding.status = FindingStatus::note;
    finding.advice = "Other processes hold the rest (ps aux --sort=-rss shows which).";
  }
  return finding;
}

Finding cgroup(const MemoryFacts& facts) {
  if (!facts.cgroup) return {topic, "cgroup limit", "none"};
  Finding finding{
      topic, "cgroup limit",
      fmt::format("{}, {} left", format_bytes(facts.cgroup->limit), format_bytes(facts.cgroup->left()))};
  if (facts.available && facts.cgroup->left() >= *facts.available) return finding;
  finding.status = FindingStatus::limit;
  finding.advice =
      "A process that passes it is killed, whatever the host has free. Raise it (Docker: --memory, "
      "Kubernetes: "
      "limits.memory, systemd: MemoryMax=, Slurm: --mem), or plan with --host-memory.";
  return finding;
}

Finding locked(const MemoryFacts& facts) {
  const MemoryLock& lock = facts.lock;
  if (lock.lifted) return {topic, "locked memory", "unlimited (CAP_IPC_LOCK)"};
  Finding finding{topic, "locked memory", limit_text(lock.soft)};
  if (lock.hard != lock.soft) finding.value += fmt::format(", can be raised to {}", limit_text(lock.hard));
  const Bytes wanted = staging_bytes * facts.rings;
  if (lock.soft >= wanted) return finding;
  const std::string raise = lock.hard < wanted             ? "ask an administrator to raise the hard limit"
                            : lock.hard == unlimited_bytes ? "ulimit -l unlimited"
                                                           : fmt::format("ulimit -l {}", lock.hard >> 10);
  finding.status = FindingStatus::limit;
  finding.advice = fmt::format(
      "Buffers beyond it are neither pinned nor registered with io_uring, so each transfer costs more CPU "
      "time. "
      "About {}{} is enough for a rank: {} (for good: memlock in /etc/security/limits.conf; Docker: --ulimit "
      "memlock=-1; "
      "systemd: LimitMEMLOCK=infinity).",
      format_bytes(wanted),
      facts.rings > 1 ? fmt::format(" ({} for each of {} devices)", format_bytes(staging_bytes), facts.rings)
                      : "",
      raise);
  return finding;
}

Finding transparent(const MemoryFacts& facts) {
  if (facts.transparent_huge_pages.empty())
    return {topic, "transparent huge pages", "unknown", FindingStatus::note,
            "This kernel has none, or /sys is not visible here. Nothing fails without them."};
  Finding finding{topic, "transparent huge pages", facts.transparent_huge_pages};
  if (facts.transparent_huge_pages == "never") {
    finding.status = FindingStatus::limit;
    finding.advice =
        "Large buffers then lie in 4 KiB pages, and the optimizer and copies pay for it in address "
        "translation. "
        "An administrator allows them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  }
  return finding;
}

Finding reserved(const MemoryFacts& facts) {
  const Bytes idle = facts.huge_pages_free * facts.huge_page_bytes;
  Finding finding{topic, "hugetlb pages",
                  facts.huge_pages == 0
                      ? "none reserved"
                      : fmt::format("{} of {} reserved, {} idle", facts.huge_pages,
                                    format_bytes(facts.huge_page_bytes), format_bytes(idle))};
  if (idle > 0) {
    finding.status = FindingStatus::note;
    finding.advice =
        "Headrace does not use them: what is idle serves nobody. An administrator gives it back: sysctl "
        "vm.nr_hugepages=0";
  }
  return finding;
}

}  // namespace

MemoryLock read_memory_lock(const MachineFiles& files) {
  constexpr unsigned ipc_lock = 14;  // CAP_IPC_LOCK
  rlimit limit{};
  MemoryLock lock;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    lock.soft = limit.rlim_cur == RLIM_INFINITY ? unlimited_bytes : limit.rlim_cur;
    lock.hard = limit.rlim_max == RLIM_INFINITY ? unlimited_bytes : limit.rlim_max;
  }
  const auto effective = files.value_of("/proc/self/status", "CapEff");
  lock.lifted = effective && (std::strtoull(effective->c_str(), nullptr, 16) >> ipc_lock & 1) != 0;
  return lock;
}

MemoryFacts read_memory(const MachineFiles& files, const MemoryLock& lock, std::size_t rings) {
  MemoryFacts facts;
  facts.rings = rings;
  facts.total = kibibytes(files, "MemTotal");
  facts.available = kibibytes(files, "MemAvailable");
  facts.cgroup = cgroup_memory(files.root());
  facts.lock = lock;
  facts.transparent_huge_pages =
      chosen(files.line("/sys/kernel/mm/transparent_hugepage/enabled").value_or(""));
  const auto count = [&](const char* key) { return files.count_of("/proc/meminfo", key).value_or(0); };
  facts.huge_pages = count("HugePages_Total");
  facts.huge_pages_free = count("HugePages_Free");
  facts.huge_page_bytes = kibibytes(files, "Hugepagesize").value_or(0);
  return facts;
}

std::vector<Finding> findings_of(const MemoryFacts& facts) {
  return {available(facts), cgroup(facts), locked(facts), transparent(facts), reserved(facts)};
}

nlohmann::ordered_json to_json(const MemoryFacts& facts) {
  using nlohmann::ordered_json;
  const auto or_null = [](const std::optional<Bytes>& bytes) {
    return bytes ? ordered_json(*bytes) : ordered_json();
  };
  const Bytes lock = facts.lock.allowed();
  return {{"memory_bytes", or_null(facts.total)},
          {"available_memory_bytes", or_null(facts.available)},
          {"cgroup_memory_bytes", facts.cgroup ? ordered_json(facts.cgroup->limit) : ordered_json()},
          {"memlock_bytes", lock == unlimited_bytes ? ordered_json() : ordered_json(lock)},
          {"transparent_huge_pages", facts.transparent_huge_pages},
          {"hugetlb_pages", facts.huge_pages}};
}

}  // namespace headrace::doctor
