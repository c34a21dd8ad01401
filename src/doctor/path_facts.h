// A folder that is to hold a swap store: whether it can be used, what its file system does, which drives are
// behind it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/doctor.h"
#include "headrace/io_probe.h"
#include "headrace/machine_files.h"
#include "headrace/mounts.h"
#include "src/doctor/drive_facts.h"

namespace headrace::doctor {

// What the operating system says of a folder.
struct PathProbe {
  std::string path, canonical = {};  // canonical: absolute and without links; empty when it does not exist
  int code = 0;                      // errno value that hides it
  bool is_folder = false, is_dangling_link = false;
  Bytes total_bytes = 0, free_bytes = 0, available_bytes = 0;  // available: to this user
  DirectIoProbe file = {};                                     // of a file in it
};
PathProbe probe_path(const std::string& path);

struct PathFacts {
  PathProbe probe;
  std::optional<Mount> mount = {};
  Storage storage = {};
  std::vector<std::string> sharing = {};  // other paths on the same file system: they share its space
  bool usable() const;                    // a store could be made there
};
PathFacts read_path(const MachineFiles& files, const std::vector<Mount>& mounts, PathProbe probe);

enum class FileSystemKind : std::uint8_t {
  local,
  copies_on_write,
  memory,
  overlay,
  network,
  passed_through,
  other
};
FileSystemKind kind_of(const std::string& file_system_type);

std::vector<Finding> findings_of(const PathFacts& facts, bool several_nodes);
// Of how many block devices an engine would find the paths on, each with a ring of its own; 1 without paths.
std::size_t devices_behind(const std::vector<PathFacts>& paths);
// Fills `sharing`.
void find_shared_space(std::vector<PathFacts>& paths);
// One for each drive that several of the paths share.
std::vector<Finding> shared_drives(const std::vector<PathFacts>& paths);
nlohmann::ordered_json to_json(const PathFacts& facts);

}  // namespace headrace::doctor
