// The drives behind a mount: from the file system down through partitions, volumes and arrays to whole disks.
#pragma once

#include <vector>

#include "headrace/block_device.h"
#include "headrace/doctor.h"

namespace headrace::doctor {

using Drive = BlockDevice;  // a whole disk
using Layer = BlockDevice;  // what lies between file system and drives: "nvme0n1p2", "dm-0", "md127", "loop0"

struct Storage {
  std::vector<Layer> layers;
  std::vector<Drive> drives;  // in the order of their names; none where nothing is visible
};
Storage read_storage(const MachineFiles& files, const Mount& mount);

// Adds no topic: the caller's. `several_nodes`: whether the place of a drive matters.
std::vector<Finding> findings_of(const Storage& storage, bool several_nodes);
nlohmann::ordered_json to_json(const Drive& drive);

}  // namespace headrace::doctor
