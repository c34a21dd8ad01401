// Memory: how much there is, what a cgroup leaves of it, how much may be locked, and its page sizes.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/cgroup.h"
#include "headrace/doctor.h"
#include "headrace/machine_files.h"

namespace headrace::doctor {

inline constexpr Bytes unlimited_bytes = std::numeric_limits<Bytes>::max();

// RLIMIT_MEMLOCK, which CAP_IPC_LOCK lifts.
struct MemoryLock {
  Bytes soft = unlimited_bytes, hard = unlimited_bytes;
  bool lifted = false;
  Bytes allowed() const { return lifted ? unlimited_bytes : soft; }
};
MemoryLock read_memory_lock(const MachineFiles& files);

struct MemoryFacts {
  std::optional<Bytes> total, available;
  std::optional<CgroupMemory> cgroup;
  MemoryLock lock;
  std::size_t rings = 1;               // each locks the staging buffers for itself
  std::string transparent_huge_pages;  // "always", "madvise", "never"; empty where the kernel has none
  std::uint64_t huge_pages = 0, huge_pages_free = 0;
  Bytes huge_page_bytes = 0;
};
// `rings`: devices to which a run would transfer.
MemoryFacts read_memory(const MachineFiles& files, const MemoryLock& lock, std::size_t rings = 1);

std::vector<Finding> findings_of(const MemoryFacts& facts);
nlohmann::ordered_json to_json(const MemoryFacts& facts);

}  // namespace headrace::doctor
