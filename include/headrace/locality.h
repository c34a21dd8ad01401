// What lies near what, as hwloc sees it: the NUMA nodes of this machine, and the memory, cores and NVMe
// drives of the node that a device of the PCI bus is attached to.
#pragma once

#include <string>
#include <vector>

#include "headrace/bytes.h"

namespace headrace {

struct Locality {
  int numa_node = -1;             // -1: the machine does not say, or has one node only
  std::string cpus;               // "0-15", as taskset takes it; empty when unknown
  std::vector<std::string> nvme;  // block devices: "nvme0n1"
};
// `bus_id` is "0000:3b:00.0". `topology_xml` stands for the machine in tests. Takes milliseconds; any thread.
Locality locality_of_pci(const std::string& bus_id, const std::string& topology_xml = "");

struct NumaNode {
  int index = 0;
  std::string cpus;  // as above
  Bytes memory_bytes = 0;
};
// In order; one of them where the machine has no NUMA, none where it does not say. `description` stands for
// the machine in tests: XML, or a synthetic one as hwloc takes it ("node:2 core:4 pu:1").
std::vector<NumaNode> numa_nodes(const std::string& description = "");

// "NUMA node 1 (cores 16-31, nvme0n1)"; empty when nothing is known.
std::string describe(const Locality& locality);

}  // namespace headrace
