#include "src/doctor/drive_facts.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::doctor {
namespace {

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// The device mapper's nodes are known by name where a file system is mounted by it.
std::string mapped_device(const MachineFiles& files, const std::string& name) {
  for (const std::string& device : files.names_in("/sys/class/block"))
    if (files.line("/sys/class/block/" + device + "/dm/name") == name) return device;
  return name;
}

// The folder below /sys/devices that describes the block device of a mount; empty when none does. File
// systems of several devices (btrfs) have a device number of their own, and name one of them as their source.
std::string device_folder(const MachineFiles& files, const Mount& mount) {
  if (!mount.device.starts_with("0:"))
    if (std::string folder = files.resolved("/sys/dev/block/" + mount.device); !folder.empty()) return folder;
  if (!mount.source.starts_with("/dev/")) return {};
  const std::string name = last_name(mount.source);
  return files.resolved("/sys/class/block/" +
                        (mount.source.starts_with("/dev/mapper/") ? mapped_device(files, name) : name));
}

Drive read_drive(const MachineFiles& files, const std::string& folder) {
  const std::string queue = folder + "/queue/";
  Drive drive{.name = last_name(folder), .model = files.line(folder + "/device/model").value_or("")};
  drive.size_bytes = files.number(folder + "/size").value_or(0) * 512;  // sectors of 512 bytes, always
  const auto yes_or_no = [&](const char* name) -> std::optional<bool> {
    const auto value = files.number(queue + name);
    return value ? std::optional(*value != 0) : std::nullopt;
  };
  drive.rotational = yes_or_no("rotational");
  drive.polled = yes_or_no("io_poll");
  drive.poll_queues = files.number("/sys/module/nvme/parameters/poll_queues").value_or(0);
  drive.scheduler = chosen(files.line(queue + "scheduler").value_or(""));
  drive.write_cache = files.line(queue + "write_cache").value_or("");
  drive.queued_requests = files.number(queue + "nr_requests");
  drive.request_kib = files.number(queue + "max_sectors_kb");
  drive.hardware_request_kib = files.number(queue + "max_hw_sectors_kb");
  for (const char* place : {"/device/numa_node", "/device/device/numa_node"})
    if (const auto node = files.number(folder + place); node && !drive.numa_node)
      drive.numa_node = static_cast<int>(*node);  // "-1", where there is none, is no such number
  return drive;
}

std::optional<Layer> layer_of(const MachineFiles& files, const std::string& folder) {
  const std::string name = last_name(folder);
  if (files.exists(folder + "/partition")) return Layer{Layer::Kind::partition, name, ""};
  if (const auto level = files.line(folder + "/md/level")) return Layer{Layer::Kind::array, name, *level};
  if (const auto uuid = files.line(folder + "/dm/uuid"))
    return Layer{uuid->starts_with("CRYPT") ? Layer::Kind::encryption : Layer::Kind::volume, name,
                 files.line(folder + "/dm/name").value_or("")};
  if (const auto file = files.line(folder + "/loop/backing_file"))
    return Layer{Layer::Kind::loop, name, *file};
  return std::nullopt;
}

void descend(const MachineFiles& files, const std::string& folder, Storage& storage, int depth) {
  constexpr int deepest = 16;  // a damaged /sys must not send this round in circles
  if (folder.empty() || depth > deepest) return;
  const auto layer = layer_of(files, folder);
  if (layer) storage.layers.push_back(*layer);
  if (layer && layer->kind == Layer::Kind::partition)
    return descend(files, folder.substr(0, folder.rfind('/')), storage, depth + 1);
  const std::vector<std::string> members = files.names_in(folder + "/slaves");
  for (const std::string& member : members)
    descend(files, files.resolved("/sys/class/block/" + member), storage, depth + 1);
  if (members.empty()) storage.drives.push_back(read_drive(files, folder));
}

}  // namespace

bool Drive::is_virtual() const {
  return name.starts_with("vd") || name.starts_with("xvd");
}

bool Drive::is_in_memory() const {
  return name.starts_with("zram") || name.starts_with("ram");
}

Storage read_storage(const MachineFiles& files, const Mount& mount) {
  Storage storage;
  descend(files, device_folder(files, mount), storage, 0);
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
