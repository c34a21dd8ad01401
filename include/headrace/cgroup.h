// What the cgroups of this process, version 1 or 2, let it have. `root` stands before /proc and the mount
// points; it is empty outside tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "headrace/bytes.h"

namespace headrace {

// CPU time per wall-clock time: the tightest quota on the way from this process's cgroup to the root.
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

struct CgroupMemory {
  Bytes limit = 0, used = 0;
  Bytes reclaimable = 0;  // of what is used: the page cache that nobody has asked for lately
  Bytes left() const {
    const Bytes kept = used - std::min(reclaimable, used);
    return limit > kept ? limit - kept : 0;
  }
};
// The level on that way that leaves the least memory; empty without a limit.
std::optional<CgroupMemory> cgroup_memory(const std::string& root = "");

struct CgroupThreads {
  std::uint64_t limit = 0;
  std::optional<std::uint64_t> used = {};  // empty where it cannot be read
  std::uint64_t left() const { return limit - std::min(limit, used.value_or(0)); }
};
// pids.max counts threads. The level that leaves the fewest; empty without a limit.
std::optional<CgroupThreads> cgroup_threads(const std::string& root = "");

}  // namespace headrace
