#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "headrace/cgroup.h"
#include "headrace/memory.h"

namespace headrace {
namespace {

constexpr Bytes unlimited = std::numeric_limits<Bytes>::max();

Bytes mem_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    Bytes kibibytes = 0;
    if (words >> key >> kibibytes && key == "MemAvailable:") return kibibytes << 10;
  }
  return unlimited;
}

}  // namespace

Bytes available_host_memory() {
  const std::optional<CgroupMemory> cgroup = cgroup_memory();
  return std::min(mem_available(), cgroup ? cgroup->left() : unlimited);
}

}  // namespace headrace
