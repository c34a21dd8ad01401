#include "headrace/block_device.h"

#include <fmt/format.h>
#include <sys/sysmacros.h>

namespace headrace {
namespace {

using Kind = BlockDevice::Kind;

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string folder_of(const std::string& name, const MachineFiles& files) {
  return files.resolved("/sys/class/block/" + name);
}

// The device mapper's nodes are known by name where a file system is mounted by it.
std::string mapped_device(const std::string& name, const MachineFiles& files) {
  for (const std::string& device : files.names_in("/sys/class/block"))
    if (files.line("/sys/class/block/" + device + "/dm/name") == name) return device;
  return name;
}

void read_kind(BlockDevice& device, const std::string& folder, const MachineFiles& files) {
  if (files.exists(folder + "/partition")) {
    device.kind = Kind::partition;
  } else if (const auto level = files.line(folder + "/md/level")) {
    device.kind = Kind::array;
    device.detail = *level;
  } else if (const auto uuid = files.line(folder + "/dm/uuid")) {
    device.kind = uuid->starts_with("CRYPT") ? Kind::encryption : Kind::volume;
    device.detail = files.line(folder + "/dm/name").value_or("");
  } else if (const auto file = files.line(folder + "/loop/backing_file")) {
    device.kind = Kind::loop;
    device.detail = *file;
  }
}

void read_queue(BlockDevice& device, const std::string& queue, const MachineFiles& files) {
  const auto yes_or_no = [&](const char* name) -> std::optional<bool> {
    const auto value = files.number(queue + name);
    return value ? std::optional(*value != 0) : std::nullopt;
  };
  device.rotational = yes_or_no("rotational");
  device.polled = yes_or_no("io_poll");
  device.scheduler = chosen(files.line(queue + "scheduler").value_or(""));
  device.write_cache = files.line(queue + "write_cache").value_or("");
  device.queued_requests = files.number(queue + "nr_requests");
  device.request_kib = files.number(queue + "max_sectors_kb");
  device.hardware_request_kib = files.number(queue + "max_hw_sectors_kb");
}

// An NVMe namespace stands below its controller, which stands below its PCIe function.
void read_hardware(BlockDevice& device, const std::string& folder, const MachineFiles& files) {
  const std::string below = folder + "/device", function = below + "/device";
  device.model = files.line(below + "/model").value_or("");
  device.link_speed = files.line(function + "/current_link_speed").value_or("");
  device.link_width = files.line(function + "/current_link_width").value_or("");
  for (const std::string& place : {below, function})
    if (const auto node = files.number(place + "/numa_node"); node && !device.numa_node)
      device.numa_node = static_cast<int>(*node);  // "-1", where there is none, is no such number
  if (device.is_nvme())
    device.poll_queues = files.number("/sys/module/nvme/parameters/poll_queues").value_or(0);
}

std::optional<BlockDevice> read_device(const std::string& folder, const MachineFiles& files, int depth) {
  constexpr int deepest = 16;  // a damaged /sys must not send this round in circles
  if (folder.empty() || depth > deepest) return std::nullopt;
  BlockDevice device{.name = last_name(folder)};
  read_kind(device, folder, files);
  device.size_bytes = files.number(folder + "/size").value_or(0) * 512;  // sectors of 512 bytes, always
  read_queue(device, folder + "/queue/", files);
  read_hardware(device, folder, files);
  const auto add = [&](const std::string& other) {
    if (auto below = read_device(other, files, depth + 1)) device.below.push_back(std::move(*below));
  };
  if (device.kind == Kind::partition)
    add(folder.substr(0, folder.rfind('/')));
  else
    for (const std::string& member : files.names_in(folder + "/slaves")) add(folder_of(member, files));
  return device;
}

}  // namespace

std::optional<BlockDevice> block_device_of(std::uint64_t number, const MachineFiles& files) {
  return read_device(
      files.resolved(fmt::format("/sys/dev/block/{}:{}", gnu_dev_major(number), gnu_dev_minor(number))),
      files, 0);
}

std::optional<BlockDevice> block_device_of(const Mount& mount, const MachineFiles& files) {
  if (!mount.device.starts_with("0:"))
    if (auto device = read_device(files.resolved("/sys/dev/block/" + mount.device), files, 0)) return device;
  if (!mount.source.starts_with("/dev/")) return std::nullopt;
  const std::string name = last_name(mount.source);
  const bool mapped = mount.source.starts_with("/dev/mapper/");
  return read_device(folder_of(mapped ? mapped_device(name, files) : name, files), files, 0);
}

}  // namespace headrace
