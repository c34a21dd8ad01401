#include "src/doctor/cpu_facts.h"

#include <fmt/format.h>

#include <sstream>

#include "headrace/cpu_placement.h"
#include "headrace/errors.h"

namespace headrace::doctor {
namespace {

constexpr const char* topic = "processor";

Finding instructions(const CpuFacts& facts) {
  Finding finding{topic, "instructions", std::string(name_of(facts.used)) + " in use"};
  if (!facts.isa_problem.empty()) {
    finding.value = fmt::format("{} is the widest", name_of(facts.widest));
    finding.status = FindingStatus::limit;
    finding.advice = facts.isa_problem;
  } else if (facts.used != facts.widest) {
    finding.value += fmt::format(", {} possible", name_of(facts.widest));
    finding.status = FindingStatus::note;
    finding.advice =
        "HEADRACE_ISA narrows the optimizer's instructions; unset it for speed. Results are the same.";
  } else if (facts.widest == Isa::scalar) {
    finding.status = FindingStatus::limit;
    finding.advice =
        "The optimizer runs scalar code, several times slower than AVX2. In a virtual machine, pass the "
        "host's "
        "CPU through (QEMU: -cpu host).";
  }
  return finding;
}

Finding bf16(const CpuFacts& facts) {
  if (!facts.bf16_with.empty())
    return {topic, "bf16 arithmetic", fmt::format("{}", fmt::join(facts.bf16_with, ", "))};
  return {
      topic, "bf16 arithmetic", "not in this CPU", FindingStatus::note,
      "--dtype bf16 saves memory, not time, on the CPU device: its products are computed by way of fp32."};
}

Finding cores(const CpuFacts& facts) {
  const int present = count_of(facts.present), online = count_of(facts.online);
  if (online == 0)
    return {topic, "cores", "unknown", FindingStatus::note,
            "/sys is not visible here (a container without it): how the cores lie cannot be told."};
  if (online >= present) return {topic, "cores", fmt::format("{} online", online)};
  return {topic, "cores", fmt::format("{} online of {} ({} offline)", online, present, facts.offline),
          FindingStatus::note,
          "Offline cores compute nothing. An administrator brings one back with: echo 1 > "
          "/sys/devices/system/cpu/cpuN/online"};
}

Finding affinity(const CpuFacts& facts) {
  const int usable = facts.limits.affinity_cpus, online = count_of(facts.online);
  Finding finding{topic, "affinity mask", fmt::format("{} CPU{}", usable, usable == 1 ? "" : "s")};
  if (online <= usable) return finding;
  finding.value += fmt::format(" of {}", online);
  finding.status = facts.limits.bound_by_launcher ? FindingStatus::note : FindingStatus::limit;
  finding.advice =
      facts.limits.bound_by_launcher
          ? "The launcher bound this rank to its part of the host; that is as it should be when every "
            "rank has a part of its own."
          : "taskset, a cpuset of the container or the job's allocation leaves out the others: ask for "
            "more CPUs there (Docker: --cpuset-cpus, Slurm: --cpus-per-task).";
  return finding;
}

Finding quota(const CpuFacts& facts) {
  if (!facts.limits.quota_cpus) return {topic, "cgroup quota", "none"};
  Finding finding{topic, "cgroup quota", fmt::format("{:.2f} CPUs of time", *facts.limits.quota_cpus)};
  if (*facts.limits.quota_cpus >= facts.limits.affinity_cpus) return finding;
  finding.status = FindingStatus::limit;
  finding.advice = fmt::format(
      "The kernel stops this process for the rest of each period; {} of {} CPUs are used to stay below it. "
      "Raise "
      "it (Docker: --cpus, Kubernetes: limits.cpu, systemd: CPUQuota=).",
      available_cpus(facts.limits), facts.limits.affinity_cpus);
  return finding;
}

Finding threads(const CpuFacts& facts) {
  const int ranks = facts.limits.local_ranks, each = threads_per_rank(facts.limits);
  Finding finding{topic, "threads",
                  fmt::format("{} a rank, {} rank{} on this host", each, ranks, ranks == 1 ? "" : "s")};
  if (const std::string bound = describe(place_threads(facts.nodes, facts.limits, each)); !bound.empty())
    finding.value += fmt::format("; bound to {}", bound);
  if (ranks <= facts.limits.affinity_cpus || facts.limits.bound_by_launcher) return finding;
  finding.status = FindingStatus::limit;
  finding.advice = "There are more ranks than CPUs, and they take turns. Start fewer ranks on this host.";
  return finding;
}

Finding numa(const CpuFacts& facts) {
  if (facts.nodes.empty())
    return {
        topic, "NUMA", "unknown", FindingStatus::note,
        "The machine does not say how its memory lies; on one with several sockets, bind each rank by hand."};
  if (facts.nodes.size() == 1) return {topic, "NUMA", "1 node"};
  std::vector<std::string> nodes;
  for (const NumaNode& node : facts.nodes)
    nodes.push_back(
        fmt::format("node {}: cores {}, {}", node.index, node.cpus, format_bytes(node.memory_bytes)));
  return {
      topic, "NUMA", fmt::format("{} nodes ({})", facts.nodes.size(), fmt::join(nodes, "; ")),
      FindingStatus::note,
      "Memory of another node is slower. Run one rank a node (mpirun --map-by numa --bind-to numa) or bind a "
      "single one (numactl --cpunodebind=N --membind=N), near its drives and its GPU."};
}

}  // namespace

int count_of(const std::string& list) {
  return static_cast<int>(cpus_of_list(list).size());
}

CpuFacts read_cpu(const MachineFiles& files, const CpuLimits& limits, std::vector<NumaNode> nodes) {
  CpuFacts facts;
  facts.model = cpu_model(files.root());
  for (const Isa isa : {Isa::avx2, Isa::avx512})
    if (supported(isa)) facts.widest = isa;
  try {
    facts.used = best_isa();
  } catch (const UsageError& error) {
    facts.isa_problem = error.what();
  }
  std::istringstream flags(files.value_of("/proc/cpuinfo", "flags").value_or(""));
  for (std::string flag; flags >> flag;)
    if (flag == "avx512_bf16" || flag == "amx_bf16") facts.bf16_with.push_back(flag);
  const std::string cpus = "/sys/devices/system/cpu/";
  facts.present = files.line(cpus + "present").value_or("");
  facts.online = files.line(cpus + "online").value_or("");
  facts.offline = files.line(cpus + "offline").value_or("");
  facts.limits = limits;
  facts.nodes = std::move(nodes);
  return facts;
}

std::vector<Finding> findings_of(const CpuFacts& facts) {
  return {{topic, "model", facts.model},
          instructions(facts),
          bf16(facts),
          cores(facts),
          affinity(facts),
          quota(facts),
          threads(facts),
          numa(facts)};
}

nlohmann::ordered_json to_json(const CpuFacts& facts) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const NumaNode& node : facts.nodes)
    nodes.push_back({{"index", node.index}, {"cpus", node.cpus}, {"memory_bytes", node.memory_bytes}});
  nlohmann::ordered_json quota;
  if (facts.limits.quota_cpus) quota = *facts.limits.quota_cpus;
  return {{"cpu", facts.model},
          {"cpus", available_cpus(facts.limits)},
          {"online_cpus", count_of(facts.online)},
          {"affinity_cpus", facts.limits.affinity_cpus},
          {"quota_cpus", quota},
          {"threads_per_rank", threads_per_rank(facts.limits)},
          {"isa", name_of(facts.used)},
          {"bf16", facts.bf16_with},
          {"numa_nodes", nodes}};
}

}  // namespace headrace::doctor
