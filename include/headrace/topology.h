// What of this machine's processors one rank may use: affinity mask, cgroup CPU quota, ranks on the same
// host. Each source is read by a function of its own, and one pure function joins them, so that all of it is
// tested without such a machine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace headrace {

// The value of an environment variable, or null; std::getenv outside tests.
using Environment = std::function<const char*(const char* name)>;

struct CpuLimits {
  int host_cpus = 1;      // that this container may use, whatever mask the launcher gave this rank
  int affinity_cpus = 1;  // in this process's affinity mask
  std::optional<double> quota_cpus = std::nullopt;  // cgroup CPU time per wall-clock time
  int local_ranks = 1;
  bool bound_by_launcher = false;  // the mask is already this rank's part of the host
  int local_rank = 0;
  std::vector<int> affinity = {};  // the mask itself; empty where the kernel does not tell it
};
CpuLimits read_cpu_limits();

// CPUs that this process may use, shared with the other ranks of the host.
int available_cpus(const CpuLimits& limits);
// This rank's fair share of them, at least 1.
int threads_per_rank(const CpuLimits& limits);

// "Intel(R) Xeon(R) ..."; "unknown" where /proc/cpuinfo does not say. `root` stands before /proc in tests.
std::string cpu_model(const std::string& root = "");

// Ranks that the launcher (mpirun, torchrun, srun) started on this host; 1 without a launcher.
int local_ranks(const Environment& environment);
// The number of this rank among them.
int local_rank(const Environment& environment);
bool bound_by_launcher(const Environment& environment);

}  // namespace headrace
