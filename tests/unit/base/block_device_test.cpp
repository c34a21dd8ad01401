// Trees of files that look like /sys.
#include "headrace/block_device.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include "support/fake_machine.h"

namespace headrace {
namespace {

using Kind = BlockDevice::Kind;

class BlockDevices : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& folder, const std::string& number) {
    machine_.with(folder + "/size", "2048\n")
        .with_link("/sys/class/block/" + name, folder)
        .with_link("/sys/dev/block/" + number, folder);
  }
  std::optional<BlockDevice> device(unsigned minor_number) const {
    return block_device_of(makedev(8, minor_number), MachineFiles(machine_.root()));
  }

  FakeMachine machine_;
};

TEST_F(BlockDevices, of_an_nvme_drive_say_what_its_controller_and_its_link_are) {
  const std::string folder = "/sys/devices/pci0/0000:01:00.0/nvme/nvme0/nvme0n1";
  add("nvme0n1", folder, "8:1");
  machine_.with(folder + "/queue/max_sectors_kb", "128\n")
      .with(folder + "/queue/max_hw_sectors_kb", "2048\n")
      .with(folder + "/queue/nr_requests", "1023\n")
      .with(folder + "/queue/rotational", "0\n")
      .with(folder + "/queue/io_poll", "1\n")
      .with(folder + "/queue/scheduler", "[none] mq-deadline\n")
      .with(folder + "/queue/write_cache", "write back\n")
      .with("/sys/devices/pci0/0000:01:00.0/nvme/nvme0/model", "Fast SSD   \n")
      .with("/sys/devices/pci0/0000:01:00.0/current_link_speed", "16.0 GT/s PCIe\n")
      .with("/sys/devices/pci0/0000:01:00.0/current_link_width", "4\n")
      .with("/sys/devices/pci0/0000:01:00.0/numa_node", "1\n")
      .with("/sys/module/nvme/parameters/poll_queues", "4\n")
      .with_link(folder + "/device", "/sys/devices/pci0/0000:01:00.0/nvme/nvme0")
      .with_link("/sys/devices/pci0/0000:01:00.0/nvme/nvme0/device", "/sys/devices/pci0/0000:01:00.0");
  const auto drive = device(1);
  ASSERT_TRUE(drive);
  EXPECT_EQ(drive->kind, Kind::disk);
  EXPECT_EQ(drive->name, "nvme0n1");
  EXPECT_EQ(drive->model, "Fast SSD");
  EXPECT_EQ(drive->size_bytes, Bytes{1} << 20);
  EXPECT_EQ(drive->request_kib, 128u);
  EXPECT_EQ(drive->hardware_request_kib, 2048u);
  EXPECT_EQ(drive->queued_requests, 1023u);
  EXPECT_EQ(drive->rotational, false);
  EXPECT_EQ(drive->polled, true);
  EXPECT_EQ(drive->poll_queues, 4u);
  EXPECT_EQ(drive->scheduler, "none");
  EXPECT_EQ(drive->write_cache, "write back");
  EXPECT_EQ(drive->numa_node, 1);
  EXPECT_EQ(drive->link_speed, "16.0 GT/s PCIe");
  EXPECT_EQ(drive->link_width, "4");
  EXPECT_TRUE(drive->below.empty());
  EXPECT_EQ(&drive->whole(), &*drive);
}

TEST_F(BlockDevices, that_say_nothing_are_known_by_name_alone) {
  add("sda", "/sys/devices/sda", "8:0");
  const auto disk = device(0);
  ASSERT_TRUE(disk);
  EXPECT_EQ(disk->name, "sda");
  EXPECT_EQ(disk->rotational, std::nullopt);
  EXPECT_EQ(disk->request_kib, std::nullopt);
  EXPECT_EQ(disk->numa_node, std::nullopt);
  EXPECT_EQ(device(9), std::nullopt);
}

TEST_F(BlockDevices, stand_on_the_disk_of_a_partition_and_the_members_of_a_volume_or_an_array) {
  add("sda", "/sys/devices/sda", "8:0");
  add("sda1", "/sys/devices/sda/sda1", "8:1");
  add("dm-0", "/sys/devices/virtual/dm-0", "8:2");
  add("md0", "/sys/devices/virtual/md0", "8:3");
  add("sdb", "/sys/devices/sdb", "8:4");
  machine_.with("/sys/devices/sda/sda1/partition", "1\n")
      .with("/sys/devices/virtual/dm-0/dm/uuid", "LVM-abc\n")
      .with("/sys/devices/virtual/dm-0/dm/name", "vg-lv\n")
      .with("/sys/devices/virtual/md0/md/level", "raid1\n")
      .with_folder("/sys/devices/virtual/dm-0/slaves/md0")
      .with_folder("/sys/devices/virtual/md0/slaves/sda1")
      .with_folder("/sys/devices/virtual/md0/slaves/sdb");
  const auto volume = device(2);
  ASSERT_TRUE(volume);
  EXPECT_EQ(volume->kind, Kind::volume);
  EXPECT_EQ(volume->detail, "vg-lv");
  ASSERT_EQ(volume->below.size(), 1u);
  const BlockDevice& array = volume->below[0];
  EXPECT_EQ(array.kind, Kind::array);
  EXPECT_EQ(array.detail, "raid1");
  ASSERT_EQ(array.below.size(), 2u);
  EXPECT_EQ(array.below[0].kind, Kind::partition);
  EXPECT_EQ(array.below[0].whole().name, "sda");
  EXPECT_EQ(array.below[1].name, "sdb");
}

TEST_F(BlockDevices, that_stand_on_each_other_come_to_an_end) {
  add("dm-0", "/sys/devices/virtual/dm-0", "8:0");
  add("dm-1", "/sys/devices/virtual/dm-1", "8:1");
  machine_.with_folder("/sys/devices/virtual/dm-0/slaves/dm-1")
      .with_folder("/sys/devices/virtual/dm-1/slaves/dm-0");
  ASSERT_TRUE(device(0));
  EXPECT_EQ(device(0)->below.size(), 1u);
}

}  // namespace
}  // namespace headrace
