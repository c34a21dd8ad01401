#include "src/doctor/path_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "support/fake_machine.h"
#include "unit/doctor/findings.h"

namespace headrace::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Bytes gib = Bytes{1} << 30;

PathProbe good_probe(const std::string& path) {
  PathProbe probe{.path = path, .canonical = path, .is_folder = true};
  probe.total_bytes = 1000 * gib;
  probe.free_bytes = 600 * gib;
  probe.available_bytes = 500 * gib;
  probe.file = {.direct = true, .stated = true, .memory_alignment = 4, .offset_alignment = 512};
  return probe;
}

// A disk at /sys/devices/NAME with the settings that its driver would show.
FakeMachine& with_disk(FakeMachine& machine, const std::string& name, const std::string& number,
                       const std::string& model, const std::string& rotational = "0") {
  const std::string folder = "/sys/devices/" + name;
  return machine.with(folder + "/size", "1953525168\n")
      .with(folder + "/device/model", model + "       \n")
      .with(folder + "/device/numa_node", "1\n")
      .with(folder + "/queue/rotational", rotational + "\n")
      .with(folder + "/queue/scheduler", "[none] mq-deadline kyber\n")
      .with(folder + "/queue/nr_requests", "1023\n")
      .with(folder + "/queue/max_sectors_kb", "1280\n")
      .with(folder + "/queue/max_hw_sectors_kb", "2048\n")
      .with(folder + "/queue/write_cache", "write back\n")
      .with(folder + "/queue/io_poll", "0\n")
      .with_link("/sys/class/block/" + name, folder)
      .with_link("/sys/dev/block/" + number, folder);
}

FakeMachine& with_partition(FakeMachine& machine, const std::string& disk, const std::string& name,
                            const std::string& number) {
  const std::string folder = "/sys/devices/" + disk + "/" + name;
  return machine.with(folder + "/partition", "2\n")
      .with_link("/sys/class/block/" + name, folder)
      .with_link("/sys/dev/block/" + number, folder);
}

PathFacts facts_on(const FakeMachine& machine, PathProbe probe) {
  return read_path(MachineFiles(machine.root()), read_mounts(machine.root()), std::move(probe));
}

std::string mount_line(const std::string& device, const std::string& point, const std::string& type,
                       const std::string& source, const std::string& super_options = "rw") {
  return "21 1 " + device + " / " + point + " rw,relatime - " + type + " " + source + " " + super_options +
         "\n";
}

TEST(SwapPath, on_a_partition_of_an_nvme_drive_is_good_and_led_to_its_disk) {
  FakeMachine machine;
  with_disk(machine, "nvme0n1", "259:0", "Fast SSD 990")
      .with("/proc/self/mountinfo", mount_line("259:2", "/mnt/a", "xfs", "/dev/nvme0n1p2"));
  with_partition(machine, "nvme0n1", "nvme0n1p2", "259:2");
  const PathFacts facts = facts_on(machine, good_probe("/mnt/a/swap"));
  EXPECT_TRUE(facts.usable());
  const auto findings = findings_of(facts, true);
  EXPECT_TRUE(every_limit_has_a_remedy(findings));
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.topic, "swap path /mnt/a/swap");
    EXPECT_NE(finding.status, FindingStatus::limit) << finding.what;
  }
  EXPECT_EQ(line(findings, "layer").value, "nvme0n1p2, a partition");
  EXPECT_EQ(line(findings, "drive").value, "nvme0n1: Fast SSD 990, 932 GiB");
  EXPECT_EQ(line(findings, "queue").value, "scheduler none, 1023 requests of up to 1280 KiB");
  EXPECT_THAT(line(findings, "write cache").value, StartsWith("write back"));
  EXPECT_THAT(line(findings, "NUMA node").value, StartsWith("1: bind"));
  EXPECT_EQ(line(findings, "direct I/O").value, "memory aligned to 4, offsets to 512 (stated by the file)");
  EXPECT_THAT(line(findings, "space").value, HasSubstr("100 GiB more is reserved"));
  EXPECT_THAT(line(findings, "space").value, HasSubstr("22.4 billion parameters"));  // 24 bytes each
}

TEST(SwapPath, poll_queues_of_nvme_are_counted_or_explained) {
  FakeMachine machine;
  with_disk(machine, "nvme0n1", "259:0", "SSD")
      .with("/proc/self/mountinfo", mount_line("259:0", "/mnt", "ext4", "/dev/nvme0n1"));
  const Finding without = line(findings_of(facts_on(machine, good_probe("/mnt")), false), "poll queues");
  EXPECT_EQ(without.value, "none");
  EXPECT_THAT(without.advice, HasSubstr("nvme.poll_queues="));
  machine.with("/sys/devices/nvme0n1/queue/io_poll", "1\n")
      .with("/sys/module/nvme/parameters/poll_queues", "4\n");
  const Finding with = line(findings_of(facts_on(machine, good_probe("/mnt")), false), "poll queues");
  EXPECT_EQ(with.value, "4");
  EXPECT_EQ(with.status, FindingStatus::ok);
}

TEST(SwapPath, on_a_disk_that_spins_is_limited) {
  FakeMachine machine;
  with_disk(machine, "sda", "8:0", "Slow Disk", "1")
      .with("/proc/self/mountinfo", mount_line("8:0", "/mnt", "ext4", "/dev/sda"));
  const Finding drive = line(findings_of(facts_on(machine, good_probe("/mnt")), false), "drive");
  EXPECT_EQ(drive.status, FindingStatus::limit);
  EXPECT_THAT(drive.value, HasSubstr("rotational"));
}

TEST(SwapPath, settings_that_slow_an_nvme_drive_come_with_the_command_that_changes_them) {
  FakeMachine machine;
  with_disk(machine, "nvme0n1", "259:0", "SSD")
      .with("/proc/self/mountinfo", mount_line("259:0", "/mnt", "ext4", "/dev/nvme0n1"))
      .with("/sys/devices/nvme0n1/queue/scheduler", "none [mq-deadline]\n");
  EXPECT_THAT(line(findings_of(facts_on(machine, good_probe("/mnt")), false), "queue").advice,
              HasSubstr("echo none > /sys/block/nvme0n1/queue/scheduler"));
  machine.with("/sys/devices/nvme0n1/queue/scheduler", "[none] mq-deadline\n")
      .with("/sys/devices/nvme0n1/queue/max_sectors_kb", "128\n");
  EXPECT_THAT(line(findings_of(facts_on(machine, good_probe("/mnt")), false), "queue").advice,
              HasSubstr("echo 1280 > /sys/block/nvme0n1/queue/max_sectors_kb"));
}

TEST(SwapPath, of_an_encrypted_volume_on_an_array_shows_every_layer_and_every_member) {
  FakeMachine machine;
  with_disk(machine, "nvme0n1", "259:0", "SSD A");
  with_disk(machine, "nvme1n1", "259:1", "SSD B")
      .with("/proc/self/mountinfo", mount_line("253:0", "/mnt", "ext4", "/dev/mapper/secret"))
      .with("/sys/devices/virtual/dm-0/dm/uuid", "CRYPT-LUKS2-1234\n")
      .with("/sys/devices/virtual/dm-0/dm/name", "secret\n")
      .with("/sys/devices/virtual/md0/md/level", "raid1\n")
      .with_folder("/sys/devices/virtual/dm-0/slaves/md0")
      .with_folder("/sys/devices/virtual/md0/slaves/nvme0n1")
      .with_folder("/sys/devices/virtual/md0/slaves/nvme1n1")
      .with_link("/sys/class/block/dm-0", "/sys/devices/virtual/dm-0")
      .with_link("/sys/class/block/md0", "/sys/devices/virtual/md0")
      .with_link("/sys/dev/block/253:0", "/sys/devices/virtual/dm-0");
  const PathFacts facts = facts_on(machine, good_probe("/mnt"));
  ASSERT_EQ(facts.storage.layers.size(), 2u);
  EXPECT_EQ(facts.storage.layers[0].kind, Layer::Kind::encryption);
  EXPECT_EQ(facts.storage.layers[1].kind, Layer::Kind::array);
  ASSERT_EQ(facts.storage.drives.size(), 2u);
  const auto findings = findings_of(facts, false);
  EXPECT_EQ(line(findings, "nvme0n1 drive").value, "nvme0n1: SSD A, 932 GiB");
  EXPECT_EQ(line(findings, "nvme1n1 drive").value, "nvme1n1: SSD B, 932 GiB");
}

TEST(SwapPath, of_a_file_system_with_a_device_number_of_its_own_is_found_by_its_source) {
  FakeMachine machine;
  with_disk(machine, "nvme0n1", "259:0", "SSD")
      .with("/proc/self/mountinfo", mount_line("0:45", "/mnt", "btrfs", "/dev/nvme0n1"));
  const PathFacts facts = facts_on(machine, good_probe("/mnt"));
  ASSERT_EQ(facts.storage.drives.size(), 1u);
  EXPECT_THAT(line(findings_of(facts, false), "file system").advice, HasSubstr("chattr +C"));
}

TEST(SwapPath, in_memory_in_a_container_layer_or_on_the_network_is_a_limit) {
  for (const char* type : {"tmpfs", "overlay", "nfs4", "fuse.sshfs"}) {
    FakeMachine machine;
    machine.with("/proc/self/mountinfo", mount_line("0:45", "/mnt", type, "server:/export"));
    const auto findings = findings_of(facts_on(machine, good_probe("/mnt")), false);
    EXPECT_EQ(line(findings, "file system").status, FindingStatus::limit) << type;
    EXPECT_TRUE(every_limit_has_a_remedy(findings));
  }
}

TEST(SwapPath, mount_options_that_cost_speed_or_safety_are_limits) {
  const auto status = [](const char* options) {
    FakeMachine machine;
    machine.with("/proc/self/mountinfo", mount_line("8:1", "/mnt", "ext4", "/dev/sda1", options));
    return line(findings_of(facts_on(machine, good_probe("/mnt")), false), "mount options").status;
  };
  EXPECT_EQ(status("rw,errors=remount-ro"), FindingStatus::ok);
  for (const char* options : {"ro", "rw,sync", "rw,nobarrier", "rw,barrier=0", "rw,data=journal"})
    EXPECT_EQ(status(options), FindingStatus::limit) << options;
}

TEST(SwapPath, that_cannot_be_written_to_is_unusable_with_the_reason_and_the_remedy) {
  FakeMachine machine;
  const auto folder = [&](PathProbe probe) {
    const PathFacts facts = facts_on(machine, std::move(probe));
    EXPECT_FALSE(facts.usable());
    EXPECT_FALSE(has_line(findings_of(facts, false), "space"));
    return line(findings_of(facts, false), "folder");
  };
  EXPECT_THAT(folder({.path = "/mnt/a", .code = ENOENT}).advice, HasSubstr("mkdir -p /mnt/a"));
  EXPECT_THAT(folder({.path = "/mnt/a", .code = ENOENT, .is_dangling_link = true}).advice,
              HasSubstr("readlink /mnt/a"));
  EXPECT_EQ(folder({.path = "/mnt/a", .canonical = "/mnt/a"}).value, "not a folder");
  for (const auto& [code, says] :
       {std::pair{EACCES, "chown"}, std::pair{EROFS, "read-only"}, std::pair{EDQUOT, "quota"}}) {
    PathProbe probe = good_probe("/mnt/a");
    probe.file = {.create_code = code};
    EXPECT_THAT(folder(probe).advice, HasSubstr(says));
  }
  PathProbe full = good_probe("/mnt/a");
  full.file = {.write_code = ENOSPC};
  EXPECT_THAT(folder(full).advice, HasSubstr("full"));
}

TEST(SwapPath, that_refuses_direct_io_is_limited) {
  PathProbe probe = good_probe("/mnt");
  probe.file = {};
  FakeMachine machine;
  EXPECT_EQ(line(findings_of(facts_on(machine, probe), false), "direct I/O").status, FindingStatus::limit);
}

TEST(SwapPath, of_a_container_without_proc_and_sys_says_what_is_unknown) {
  FakeMachine machine;
  EXPECT_EQ(line(findings_of(facts_on(machine, good_probe("/mnt")), false), "file system").value, "unknown");
  machine.with("/proc/self/mountinfo", mount_line("259:2", "/mnt", "ext4", "/dev/nvme0n1p2"));
  const auto findings = findings_of(facts_on(machine, good_probe("/mnt")), false);
  EXPECT_EQ(line(findings, "drive").value, "/dev/nvme0n1p2");
  EXPECT_EQ(line(findings, "drive").status, FindingStatus::note);
}

TEST(SwapPaths, on_one_drive_are_warned_of_and_on_two_are_not) {
  FakeMachine machine;
  with_disk(machine, "nvme0n1", "259:0", "SSD A");
  with_disk(machine, "nvme1n1", "259:9", "SSD B")
      .with("/proc/self/mountinfo", mount_line("259:1", "/a", "ext4", "/dev/nvme0n1p1") +
                                        mount_line("259:2", "/b", "ext4", "/dev/nvme0n1p2") +
                                        mount_line("259:9", "/c", "ext4", "/dev/nvme1n1") +
                                        mount_line("0:50", "/d", "tmpfs", "tmpfs") +
                                        mount_line("0:51", "/e", "tmpfs", "tmpfs"));
  with_partition(machine, "nvme0n1", "nvme0n1p1", "259:1");
  with_partition(machine, "nvme0n1", "nvme0n1p2", "259:2");
  std::vector<PathFacts> paths;
  for (const char* path : {"/a", "/c", "/d", "/e"}) paths.push_back(facts_on(machine, good_probe(path)));
  EXPECT_TRUE(shared_drives(paths).empty());
  paths.push_back(facts_on(machine, good_probe("/b")));
  const auto findings = shared_drives(paths);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].value, "nvme0n1 is behind /a, /b");
  EXPECT_EQ(findings[0].status, FindingStatus::limit);
}

TEST(SwapPath, folders_of_one_file_system_hold_together_what_it_has_free) {
  FakeMachine machine;
  with_disk(machine, "nvme0n1", "259:0", "SSD")
      .with("/proc/self/mountinfo", mount_line("259:0", "/mnt", "ext4", "/dev/nvme0n1"));
  std::vector<PathFacts> paths;
  for (const char* path : {"/mnt/d1", "/mnt/d2"}) paths.push_back(facts_on(machine, good_probe(path)));
  EXPECT_THAT(line(findings_of(paths[0], false), "space").value, ::testing::Not(HasSubstr("together")));
  find_shared_space(paths);
  EXPECT_THAT(line(findings_of(paths[0], false), "space").value,
              HasSubstr("parameters, together with /mnt/d2"));
  EXPECT_THAT(line(findings_of(paths[1], false), "space").value, HasSubstr("together with /mnt/d1"));
}

TEST(SwapPath, devices_behind_several_are_counted_once_each) {
  FakeMachine machine;
  machine.with("/proc/self/mountinfo", mount_line("259:0", "/a", "ext4", "/dev/nvme0n1") +
                                           mount_line("259:2", "/b", "ext4", "/dev/nvme1n1p1"));
  std::vector<PathFacts> paths;
  EXPECT_EQ(devices_behind(paths), 1u);
  for (const auto& [path, devices] : {std::pair{"/a/1", 1u}, {"/a/2", 1u}, {"/b/1", 2u}}) {
    paths.push_back(facts_on(machine, good_probe(path)));
    EXPECT_EQ(devices_behind(paths), devices) << path;
  }
}

TEST(SwapPath, file_in_the_place_of_a_folder_has_no_lines_about_its_drive) {
  FakeMachine machine;
  with_disk(machine, "nvme0n1", "259:0", "SSD")
      .with("/proc/self/mountinfo", mount_line("259:0", "/mnt", "ext4", "/dev/nvme0n1"));
  PathProbe probe = good_probe("/mnt/file");
  probe.is_folder = false;
  const auto findings = findings_of(facts_on(machine, std::move(probe)), false);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].value, "not a folder");
  EXPECT_EQ(findings[0].topic, "swap path /mnt/file");
}

TEST(SwapPath, probe_of_a_real_folder_leaves_nothing_behind) {
  FakeMachine folder;
  const PathProbe probe = probe_path(folder.root());
  EXPECT_EQ(probe.code, 0);
  EXPECT_TRUE(probe.is_folder);
  EXPECT_EQ(probe.file.create_code, 0);
  EXPECT_EQ(probe.file.write_code, 0);
  EXPECT_EQ(probe.file.direct, probe.file.offset_alignment > 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.root()));
  EXPECT_EQ(probe_path(folder.root() + "/missing").code, ENOENT);
}

TEST(SwapPath, file_system_types_are_classed) {
  EXPECT_EQ(kind_of("ext4"), FileSystemKind::local);
  EXPECT_EQ(kind_of("fuse.anything"), FileSystemKind::passed_through);
  EXPECT_EQ(kind_of("fuse.sshfs"), FileSystemKind::network);
  EXPECT_EQ(kind_of("newfs"), FileSystemKind::other);
}

}  // namespace
}  // namespace headrace::doctor
