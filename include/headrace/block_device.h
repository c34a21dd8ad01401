// Block devices as /sys describes them: the one place that knows what stands where. What cannot be read is
// empty. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/machine_files.h"
#include "headrace/mounts.h"

namespace headrace {

struct BlockDevice {
  enum class Kind : std::uint8_t { disk, partition, volume, encryption, array, loop };
  Kind kind = Kind::disk;
  std::string name = {};    // "nvme0n1", "nvme0n1p2", "dm-0"
  std::string detail = {};  // the RAID level of an array, a volume's name, the file behind a loop device
  // A partition's disk, the members of a volume or an array; none where it stands on no other device.
  std::vector<BlockDevice> below = {};

  std::string model = {};
  Bytes size_bytes = 0;
  std::optional<bool> rotational = {},
                      polled = {};               // polled: the driver offers completions without interrupts
  std::uint64_t poll_queues = 0;                 // of the NVMe driver
  std::string scheduler = {}, write_cache = {};  // "none", "mq-deadline"; "write back", "write through"
  std::optional<std::uint64_t> queued_requests = {}, request_kib = {}, hardware_request_kib = {};
  std::optional<int> numa_node = {};
  std::string link_speed = {}, link_width = {};  // of an NVMe drive's PCIe link: "16.0 GT/s PCIe", "4"

  const BlockDevice& whole() const { return kind == Kind::partition && !below.empty() ? below[0] : *this; }
  bool is_nvme() const { return name.starts_with("nvme"); }
  bool is_virtual() const { return name.starts_with("vd") || name.starts_with("xvd"); }
  bool is_in_memory() const { return name.starts_with("zram") || name.starts_with("ram"); }
};

// By its number (st_dev of a file on it); none for what is no block device: tmpfs, nfs, btrfs' own numbers.
std::optional<BlockDevice> block_device_of(std::uint64_t number, const MachineFiles& files = MachineFiles());
// Behind a mount: a file system of several devices, with a number of its own, names one of them.
std::optional<BlockDevice> block_device_of(const Mount& mount, const MachineFiles& files = MachineFiles());

}  // namespace headrace
