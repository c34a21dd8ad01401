// The mounted file systems of this process, as /proc/self/mountinfo lists them (proc_pid_mountinfo(5)).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct Mount {
  std::string device;         // "259:1"; "0:31" where no block device stands behind it alone
  std::string root;           // the folder of the file system that is mounted
  std::string point;          // where
  std::string options;        // of this mount: "rw,relatime"
  std::string type;           // "ext4", "nfs4", "cgroup2"
  std::string source;         // "/dev/nvme0n1p2", "server:/export", "tmpfs"
  std::string super_options;  // of the file system: "rw,barrier=0"
};

// In the order of the file; empty where it cannot be read. `machine_root` stands before /proc in tests.
std::vector<Mount> read_mounts(const std::string& machine_root = "");
// The mount that holds an absolute path without links; null when none does. A later mount hides an earlier
// one.
const Mount* mount_of(const std::string& path, const std::vector<Mount>& mounts);

// Whether the comma-separated list has this entry, whole.
bool has_option(std::string_view options, std::string_view wanted);

}  // namespace headrace
