#include "headrace/cgroup.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>

#include "headrace/mounts.h"

namespace headrace {
namespace {

// This process's path in the hierarchy of `controller`, from /proc/self/cgroup: lines "id:controllers:path".
std::string cgroup_path(const std::string& root, bool unified, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : has_option(controllers, controller)) return line.substr(second + 1);
  }
  return "/";
}

// The path below the mount point: a container may see its own cgroup mounted as the root of the hierarchy.
std::string below_mount(const Mount& mount, std::string path) {
  if (mount.root != "/" && path.starts_with(mount.root)) path.erase(0, mount.root.size());
  while (path.ends_with('/')) path.pop_back();
  return path;
}

// Visits the folders from this process's cgroup up to the root, in each hierarchy that has the controller.
void each_level(const std::string& root, const std::string& controller,
                const std::function<void(const std::string& folder, bool unified)>& visit) {
  for (const Mount& mount : read_mounts(root)) {
    const bool unified = mount.type == "cgroup2";
    if (!unified && (mount.type != "cgroup" || !has_option(mount.super_options, controller))) continue;
    std::string path = below_mount(mount, cgroup_path(root, unified, controller));
    for (bool at_top = false; !at_top;) {
      at_top = path.empty();
      visit(root + mount.point + path, unified);
      if (!at_top) path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
}

std::optional<double> quota_in(const std::string& folder, bool unified) {
  std::string quota;
  double period = 0;
  if (unified) {
    std::ifstream(folder + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  const double microseconds = std::strtod(quota.c_str(), nullptr);  // "max" and "-1": no limit
  if (microseconds <= 0 || period <= 0) return std::nullopt;
  return microseconds / period;
}

// A number in a one-line file; empty when it is missing or says "max".
std::optional<Bytes> number_in(const std::string& path) {
  std::ifstream file(path);
  Bytes value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// The value of a "key value" line; 0 where there is none.
Bytes value_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string name;
  for (Bytes value = 0; file >> name >> value;)
    if (name == key) return value;
  return 0;
}

std::optional<CgroupMemory> memory_in(const std::string& folder, bool unified) {
  constexpr Bytes never_reached = Bytes{1} << 60;  // version 1 writes "no limit" as a number of that size
  const auto limit = number_in(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = number_in(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used || *limit >= never_reached) return std::nullopt;
  // Version 1 counts the groups below under names of their own.
  const Bytes inactive = value_in(folder + "/memory.stat", unified ? "inactive_file" : "total_inactive_file");
  return CgroupMemory{.limit = *limit, .used = *used, .reclaimable = std::min(inactive, *used)};
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> tightest;
  each_level(root, "cpu", [&](const std::string& folder, bool unified) {
    const auto quota = quota_in(folder, unified);
    if (quota && (!tightest || *quota < *tightest)) tightest = quota;
  });
  return tightest;
}

std::optional<CgroupMemory> cgroup_memory(const std::string& root) {
  std::optional<CgroupMemory> tightest;
  each_level(root, "memory", [&](const std::string& folder, bool unified) {
    const auto memory = memory_in(folder, unified);
    if (memory && (!tightest || memory->left() < tightest->left())) tightest = memory;
  });
  return tightest;
}

std::optional<CgroupThreads> cgroup_threads(const std::string& root) {
  std::optional<CgroupThreads> tightest;
  each_level(root, "pids", [&](const std::string& folder, bool /*unified*/) {  // both name the files alike
    const auto limit = number_in(folder + "/pids.max");
    if (!limit) return;
    const CgroupThreads here{.limit = *limit, .used = number_in(folder + "/pids.current")};
    if (!tightest || here.left() < tightest->left()) tightest = here;
  });
  return tightest;
}

}  // namespace headrace
