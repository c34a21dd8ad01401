// The drives behind a mount: from the file system down through partitions, volumes and arrays to whole disks,
// as /sys describes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/doctor.h"
#include "headrace/mounts.h"
#include "src/doctor/machine_files.h"

namespace headrace::doctor {

struct Drive {
  std::string name, model;  // "nvme0n1"; the model is empty where the drive has none
  Bytes size_bytes = 0;
  std::optional<bool> rotational = {},
                      polled = {};               // polled: the driver offers completions without interrupts
  std::uint64_t poll_queues = 0;                 // of the NVMe driver
  std::string scheduler = {}, write_cache = {};  // "none", "mq-deadline"; "write back", "write through"
  std::optional<std::uint64_t> queued_requests = {}, request_kib = {}, hardware_request_kib = {};
  std::optional<int> numa_node = {};
  bool is_nvme() const { return name.starts_with("nvme"); }
  bool is_virtual() const;    // of a virtual machine
  bool is_in_memory() const;  // zram, brd
};

// What lies between file system and drives: "nvme0n1p2", "dm-0", "md127", "loop0".
struct Layer {
  enum class Kind : std::uint8_t { partition, volume, encryption, array, loop };
  Kind kind = Kind::partition;
  std::string name = {}, detail = {};  // detail: the RAID level of an array, the file behind a loop device
};

struct Storage {
  std::vector<Layer> layers;
  std::vector<Drive> drives;  // in the order of their names; none where nothing is visible
};
Storage read_storage(const MachineFiles& files, const Mount& mount);

// Adds no topic: the caller's. `several_nodes`: whether the place of a drive matters.
std::vector<Finding> findings_of(const Storage& storage, bool several_nodes);
nlohmann::ordered_json to_json(const Drive& drive);

}  // namespace headrace::doctor
