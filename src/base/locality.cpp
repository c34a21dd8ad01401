#include "headrace/locality.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <type_traits>

#include "src/base/processor_topology.h"

namespace headrace {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, DestroyTopology>;

// What stands for the machine in tests is XML, or one of hwloc's synthetic descriptions ("node:2 core:4
// pu:1").
bool describes_machine(hwloc_topology_t topology, const std::string& text) {
  if (!text.starts_with('<')) return hwloc_topology_set_synthetic(topology, text.c_str()) == 0;
  return hwloc_topology_set_xmlbuffer(topology, text.c_str(), static_cast<int>(text.size()) + 1) == 0;
}

enum class Devices : std::uint8_t { left_out, read };

Topology load(const std::string& text, Devices devices) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  if (devices == Devices::read) hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  // The bus and the kernel's drives are all that is asked; these would start the runtimes of every vendor.
  for (const char* component : {"opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  if (!text.empty() && !describes_machine(raw, text)) return nullptr;
  return hwloc_topology_load(raw) == 0 ? std::move(topology) : nullptr;
}

// This machine's, read once and kept: hwloc's plug-in for the bus loses memory each time it is unloaded.
hwloc_topology_t machine_topology() {
  static const hwloc_topology_t one = load("", Devices::read).release();
  return one;
}

std::string cpu_list(hwloc_const_cpuset_t cpus) {
  char* text = nullptr;
  if (cpus == nullptr || hwloc_bitmap_list_asprintf(&text, cpus) < 0) return {};
  std::string list(text);
  std::free(text);
  return list;
}

}  // namespace

hwloc_topology_t processor_topology() {
  static const hwloc_topology_t one = load("", Devices::left_out).release();
  return one;
}

Locality locality_of_pci(const std::string& bus_id, const std::string& topology_xml) {
  Locality found;
  const Topology given = topology_xml.empty() ? nullptr : load(topology_xml, Devices::read);
  const hwloc_topology_t topology = topology_xml.empty() ? machine_topology() : given.get();
  if (topology == nullptr) return found;
  hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, bus_id.c_str());
  if (device == nullptr) return found;
  hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
  if (near == nullptr) return found;
  found.cpus = cpu_list(near->cpuset);
  if (hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) > 1 && hwloc_bitmap_weight(near->nodeset) == 1)
    found.numa_node = hwloc_bitmap_first(near->nodeset);
  for (hwloc_obj_t os = nullptr; (os = hwloc_get_next_osdev(topology, os)) != nullptr;) {
    if (os->attr->osdev.type != HWLOC_OBJ_OSDEV_BLOCK || !std::string_view(os->name).starts_with("nvme"))
      continue;
    hwloc_obj_t drive_near = hwloc_get_non_io_ancestor_obj(topology, os);
    if (drive_near != nullptr && hwloc_bitmap_intersects(drive_near->nodeset, near->nodeset))
      found.nvme.emplace_back(os->name);
  }
  return found;
}

std::vector<NumaNode> numa_nodes(const std::string& description) {
  const Topology given = description.empty() ? nullptr : load(description, Devices::left_out);
  const hwloc_topology_t topology = description.empty() ? processor_topology() : given.get();
  std::vector<NumaNode> nodes;
  if (topology == nullptr) return nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    nodes.push_back({.index = static_cast<int>(node->os_index),
                     .cpus = cpu_list(node->cpuset),
                     .memory_bytes = node->attr->numanode.local_memory});
  return nodes;
}

std::string describe(const Locality& locality) {
  if (locality.cpus.empty()) return {};
  std::string inside = fmt::format("cores {}", locality.cpus);
  if (!locality.nvme.empty()) inside += fmt::format(", {}", fmt::join(locality.nvme, ", "));
  return locality.numa_node < 0 ? inside : fmt::format("NUMA node {} ({})", locality.numa_node, inside);
}

}  // namespace headrace
