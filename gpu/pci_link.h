// The PCI Express link of a device, as the kernel describes it below /sys.
#pragma once

#include <string>

namespace headrace {

struct PciLink {
  std::string name;             // "PCIe 5.0 x16"; empty when unknown
  double bytes_per_second = 0;  // of data in each direction, before packet headers; 0: unknown
};
// `root` stands before /sys in tests.
PciLink pci_link_of(const std::string& bus_id, const std::string& root = "");

}  // namespace headrace
