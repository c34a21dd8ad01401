#include "gpu/pci_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

namespace headrace {
namespace {

// Rates of the generations, and the share of bits that are data: 8b/10b before 3.0, 128b/130b from then on,
// none lost to coding from 6.0 on (PCI Express Base Specification).
struct Generation {
  double transfers_per_second;
  const char* name;
  double efficiency;
};
constexpr Generation generations[] = {
    {2.5e9, "1.0", 8.0 / 10},   {5e9, "2.0", 8.0 / 10},     {8e9, "3.0", 128.0 / 130},
    {16e9, "4.0", 128.0 / 130}, {32e9, "5.0", 128.0 / 130}, {64e9, "6.0", 1.0},
};

double first_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  file >> value;
  return file ? value : 0;
}

}  // namespace

PciLink pci_link_of(const std::string& bus_id, const std::string& root) {
  std::string lower = bus_id;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::string folder = root + "/sys/bus/pci/devices/" + lower + "/";
  // The speed that it trains to under load: idle devices lower theirs.
  double transfers = first_number(folder + "max_link_speed") * 1e9;  // "32.0 GT/s PCIe"
  const double lanes = first_number(folder + "current_link_width");
  // The port above may be older than the device.
  std::error_code unknown;
  const std::filesystem::path port = std::filesystem::canonical(folder, unknown).parent_path();
  if (const double above = first_number((port / "max_link_speed").string()) * 1e9; !unknown && above > 0)
    transfers = std::min(transfers, above);
  for (const Generation& generation : generations)
    if (generation.transfers_per_second == transfers && lanes > 0)
      return {fmt::format("PCIe {} x{:g}", generation.name, lanes),
              transfers * lanes * generation.efficiency / 8};
  return {};
}

}  // namespace headrace
