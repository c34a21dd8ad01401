#include "headrace/topology.h"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "headrace/cgroup.h"

namespace headrace {
namespace {

std::vector<int> affinity_mask() {
  // The kernel refuses a set smaller than its own: grow it until it fits.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
    if (set == nullptr) break;
    const std::size_t set_bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    const bool known = sched_getaffinity(0, set_bytes, set) == 0;
    std::vector<int> mask;
    for (int cpu = 0; known && cpu < cpus; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), set_bytes, set)) mask.push_back(cpu);
    CPU_FREE(set);
    if (known) return mask;
  }
  return {};
}

int online_cpus() {
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

// Online CPUs less those that the cpuset of this container excludes.
int allowed_cpus() {
  int allowed = 0;
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return online_cpus();
  if (hwloc_topology_load(topology) == 0) {
    allowed = hwloc_bitmap_weight(hwloc_topology_get_allowed_cpuset(topology));
  }
  hwloc_topology_destroy(topology);
  return allowed > 0 ? allowed : online_cpus();
}

int positive_number(const char* text) {
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

// SLURM_STEP_TASKS_PER_NODE: "2(x3),1" is 2, 2, 2, 1 tasks on nodes 0 to 3.
int tasks_of_node(const char* text, int node) {
  if (text == nullptr) return 0;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    const std::size_t repeat = part.find("(x");
    node -= repeat == std::string::npos ? 1 : std::max(1, std::atoi(part.c_str() + repeat + 2));
    if (node < 0) return positive_number(part.c_str());
  }
  return 0;
}

}  // namespace

int local_ranks(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "LOCAL_WORLD_SIZE"}) {
    if (const int ranks = positive_number(environment(name)); ranks > 0) return ranks;
  }
  const int node = positive_number(environment("SLURM_NODEID"));
  return std::max(1, tasks_of_node(environment("SLURM_STEP_TASKS_PER_NODE"), node));
}

int local_rank(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID"})
    if (const char* text = environment(name); text != nullptr) return positive_number(text);
  return 0;
}

bool bound_by_launcher(const Environment& environment) {
  if (positive_number(environment("OMPI_MCA_orte_bound_at_launch")) > 0) return true;
  const char* slurm = environment("SLURM_CPU_BIND_TYPE");
  return slurm != nullptr && *slurm != '\0' && std::string_view(slurm) != "none";
}

std::string cpu_model(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const std::size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown";
}

CpuLimits read_cpu_limits() {
  const Environment environment = [](const char* name) { return std::getenv(name); };
  CpuLimits limits;
  limits.affinity = affinity_mask();
  limits.affinity_cpus = std::max(1, static_cast<int>(limits.affinity.size()));
  limits.host_cpus = limits.affinity_cpus;
  limits.quota_cpus = cgroup_cpu_quota();
  limits.local_ranks = local_ranks(environment);
  limits.local_rank = local_rank(environment);
  limits.bound_by_launcher = bound_by_launcher(environment);
  if (limits.bound_by_launcher) limits.host_cpus = std::max(allowed_cpus(), limits.affinity_cpus);
  return limits;
}

int available_cpus(const CpuLimits& limits) {
  if (!limits.quota_cpus) return limits.affinity_cpus;
  return std::clamp(static_cast<int>(std::ceil(*limits.quota_cpus)), 1, limits.affinity_cpus);
}

// A mask given to this rank alone is not divided again, but several ranks may have been bound to one mask (a
// socket): no rank takes more than its part of the host either.
int threads_per_rank(const CpuLimits& limits) {
  const int shared = limits.bound_by_launcher ? limits.host_cpus : limits.affinity_cpus;
  double share = static_cast<double>(shared) / limits.local_ranks;
  if (limits.quota_cpus) share = std::min(share, std::ceil(*limits.quota_cpus) / limits.local_ranks);
  return std::clamp(static_cast<int>(share), 1, limits.affinity_cpus);
}

}  // namespace headrace
