#include <algorithm>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/swap_paths.h"

namespace headrace {

std::vector<DiskSpace> space_by_disk(const std::vector<PathSpace>& paths, std::vector<std::string>* unknown) {
  std::vector<DiskSpace> disks;
  std::vector<std::uint64_t> devices;  // of the disks
  for (const PathSpace& path : paths) {
    files::FileSystem system;
    try {
      system = files::file_system_of(path.path);
    } catch (const IoError&) {
      if (unknown == nullptr) throw;
      unknown->push_back(path.path);
      continue;
    }
    const auto at = static_cast<std::size_t>(std::ranges::find(devices, system.device) - devices.begin());
    if (at == devices.size()) {
      devices.push_back(system.device);
      disks.push_back({.paths = {}, .needed = 0, .available = system.free_bytes});
    }
    DiskSpace& disk = disks[at];
    disk.paths.push_back(path.path);
    disk.needed += path.needed;
    disk.available += path.given_back;
  }
  return disks;
}

}  // namespace headrace
