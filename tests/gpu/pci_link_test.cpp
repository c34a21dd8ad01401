#include "gpu/pci_link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headrace {
namespace {

// A /sys with one device.
class PciLinkTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(root); }
  void write(const char* name, const char* text) { std::ofstream(folder / name) << text; }
  std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("headrace-pci-" + std::to_string(::getpid()));
  std::filesystem::path folder = root / "sys/bus/pci/devices/0000:3b:00.0";
};

TEST_F(PciLinkTest, generation_and_lanes_give_the_rate_of_data) {
  write("max_link_speed", "32.0 GT/s PCIe\n");
  write("current_link_width", "16\n");
  const PciLink link = pci_link_of("0000:3B:00.0", root.string());
  EXPECT_EQ(link.name, "PCIe 5.0 x16");
  EXPECT_NEAR(link.bytes_per_second, 63.015e9, 1e6);
}

TEST_F(PciLinkTest, old_generations_lose_a_fifth_to_their_code) {
  write("max_link_speed", "5.0 GT/s PCIe\n");
  write("current_link_width", "4\n");
  EXPECT_EQ(pci_link_of("0000:3b:00.0", root.string()).name, "PCIe 2.0 x4");
  EXPECT_DOUBLE_EQ(pci_link_of("0000:3b:00.0", root.string()).bytes_per_second, 2e9);
}

TEST_F(PciLinkTest, an_older_port_above_the_device_sets_the_rate) {
  const auto port = root / "sys/devices/pci0000:3a/0000:3a:00.0";
  std::filesystem::create_directories(port / "0000:3b:00.0");
  std::filesystem::remove(folder);
  std::filesystem::create_directory_symlink(port / "0000:3b:00.0", folder);
  std::ofstream(port / "max_link_speed") << "16.0 GT/s PCIe";
  write("max_link_speed", "32.0 GT/s PCIe");
  write("current_link_width", "16");
  EXPECT_EQ(pci_link_of("0000:3b:00.0", root.string()).name, "PCIe 4.0 x16");
}

TEST_F(PciLinkTest, what_the_kernel_does_not_say_is_unknown) {
  EXPECT_EQ(pci_link_of("0000:3b:00.0", root.string()).name, "");
  write("max_link_speed", "Unknown\n");
  write("current_link_width", "0\n");
  EXPECT_EQ(pci_link_of("0000:3b:00.0", root.string()).bytes_per_second, 0);
}

}  // namespace
}  // namespace headrace
