#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

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

// A number in a one-line file; `unlimited` when it is missing or says "max".
Bytes number_in(const std::string& path) {
  std::ifstream file(path);
  Bytes value = 0;
  return file >> value ? value : unlimited;
}

// The folder of this process in the cgroup v2 hierarchy.
std::string cgroup_folder() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + line.substr(3);
  return {};
}

// The least that any level of the cgroup hierarchy leaves.
Bytes cgroup_available() {
  Bytes least = unlimited;
  for (std::string folder = cgroup_folder(); folder.starts_with("/sys/fs/cgroup");
       folder = folder.substr(0, folder.rfind('/'))) {
    const Bytes limit = number_in(folder + "/memory.max"), used = number_in(folder + "/memory.current");
    if (limit != unlimited && used != unlimited) least = std::min(least, limit > used ? limit - used : 0);
  }
  const Bytes limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const Bytes used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  if (limit != unlimited && used != unlimited) least = std::min(least, limit > used ? limit - used : 0);
  return least;
}

}  // namespace

Bytes available_host_memory() {
  return std::min(mem_available(), cgroup_available());
}

}  // namespace headrace
