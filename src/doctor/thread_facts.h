// How many threads and open files this process may have, and how many there are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "headrace/doctor.h"
#include "headrace/machine_files.h"

namespace headrace::doctor {

inline constexpr std::uint64_t unlimited_count = std::numeric_limits<std::uint64_t>::max();

struct CountLimit {
  std::uint64_t soft = unlimited_count, hard = unlimited_count;
  std::optional<std::uint64_t> used = {};  // empty where it cannot be seen
  std::uint64_t left() const {
    if (soft == unlimited_count) return soft;
    return soft - std::min(soft, used.value_or(0));
  }
};

struct ThreadFacts {
  int cpus = 1;                           // that a rank computes on
  CountLimit user = {};                   // RLIMIT_NPROC, which counts all threads of the user
  bool lifted = false;                    // for administrators
  std::optional<CountLimit> cgroup = {};  // pids.max: the level on the way to the root that leaves the fewest
  CountLimit files = {};                  // RLIMIT_NOFILE
};
// The limits are those of this process; what is in use stands below /proc.
ThreadFacts read_threads(const MachineFiles& files, int cpus);

std::vector<Finding> findings_of(const ThreadFacts& facts);
nlohmann::ordered_json to_json(const ThreadFacts& facts);

}  // namespace headrace::doctor
