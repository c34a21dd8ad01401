// What lies near a device of the PCI bus: memory, cores and NVMe drives of the same NUMA node, as hwloc sees
// them.
#pragma once

#include <string>
#include <vector>

namespace headrace {

struct Locality {
  int numa_node = -1;             // -1: the machine does not say, or has one node only
  std::string cpus;               // "0-15", as taskset takes it; empty when unknown
  std::vector<std::string> nvme;  // block devices: "nvme0n1"
};
// `bus_id` is "0000:3b:00.0". `topology_xml` stands for the machine in tests. Takes milliseconds; any thread.
Locality locality_of_pci(const std::string& bus_id, const std::string& topology_xml = "");

// "NUMA node 1 (cores 16-31, nvme0n1)"; empty when nothing is known.
std::string describe(const Locality& locality);

}  // namespace headrace
