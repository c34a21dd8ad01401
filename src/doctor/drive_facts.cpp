#include "src/doctor/drive_facts.h"

#include <algorithm>

namespace headrace::doctor {
namespace {

void descend(const BlockDevice& device, Storage& storage) {
  if (device.kind != BlockDevice::Kind::disk) storage.layers.push_back(device);
  for (const BlockDevice& below : device.below) descend(below, storage);
  if (device.below.empty()) storage.drives.push_back(device);
}

}  // namespace

Storage read_storage(const MachineFiles& files, const Mount& mount) {
  Storage storage;
  if (const auto device = block_device_of(mount, files)) descend(*device, storage);
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  const auto same_name = [](const auto& a, const auto& b) { return a.name == b.name; };
  std::sort(storage.drives.begin(), storage.drives.end(), by_name);
  storage.drives.erase(std::unique(storage.drives.begin(), storage.drives.end(), same_name),
                       storage.drives.end());
  return storage;
}

nlohmann::ordered_json to_json(const Drive& drive) {
  using nlohmann::ordered_json;
  const auto or_null = [](const auto& value) { return value ? ordered_json(*value) : ordered_json(); };
  return {{"name", drive.name},
          {"model", drive.model},
          {"size_bytes", drive.size_bytes},
          {"rotational", or_null(drive.rotational)},
          {"scheduler", drive.scheduler},
          {"nr_requests", or_null(drive.queued_requests)},
          {"max_sectors_kb", or_null(drive.request_kib)},
          {"write_cache", drive.write_cache},
          {"poll_queues", drive.is_nvme() ? ordered_json(drive.poll_queues) : ordered_json()},
          {"numa_node", or_null(drive.numa_node)}};
}

}  // namespace headrace::doctor
