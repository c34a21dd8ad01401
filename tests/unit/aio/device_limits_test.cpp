// Trees of files that look like /sys.
#include "aio/device_limits.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/aio/io_fixture.h"

namespace headrace::aio {
namespace {

using namespace headrace::literals;
namespace fs = std::filesystem;

class DeviceLimitsTest : public ::testing::Test {
 protected:
  struct Queue {
    int max_sectors_kb, nr_requests, rotational = 0, io_poll = 0;
  };
  void add_disk(const std::string& name, unsigned minor_number, const Queue& queue) {
    const fs::path at = sys_ / "devices" / name;
    fs::create_directories(at / "queue");
    fs::create_directories(at / "slaves");
    std::ofstream(at / "queue/max_sectors_kb") << queue.max_sectors_kb << "\n";
    std::ofstream(at / "queue/nr_requests") << queue.nr_requests << "\n";
    std::ofstream(at / "queue/rotational") << queue.rotational << "\n";
    std::ofstream(at / "queue/io_poll") << queue.io_poll << "\n";
    link(at, minor_number);
  }
  void add_partition(const std::string& disk, const std::string& name, unsigned minor_number) {
    const fs::path at = sys_ / "devices" / disk / name;
    fs::create_directories(at);
    std::ofstream(at / "partition") << "1\n";
    link(at, minor_number);
  }
  void add_member(const std::string& name, const std::string& member) {
    const fs::path at = sys_ / "devices" / name / "slaves" / fs::path(member).filename();
    fs::create_directory_symlink(sys_ / "devices" / member, at);
  }
  std::optional<DeviceLimits> limits(unsigned minor_number) const {
    return read_device_limits(makedev(8, minor_number), sys_);
  }

 private:
  void link(const fs::path& to, unsigned minor_number) const {
    fs::create_directories(sys_ / "dev/block");
    fs::create_directory_symlink(to, sys_ / "dev/block" / ("8:" + std::to_string(minor_number)));
  }
  testing::IoFolder folder_;
  const fs::path sys_ = folder_.file("sys");
};

TEST_F(DeviceLimitsTest, of_a_disk_are_its_queues) {
  add_disk("sda", 0, {.max_sectors_kb = 1280, .nr_requests = 256, .rotational = 1});
  add_disk("nvme0n1", 1, {.max_sectors_kb = 128, .nr_requests = 1023, .io_poll = 1});
  EXPECT_EQ(limits(0),
            (DeviceLimits{.max_request_bytes = 1280_KiB, .queue_requests = 256, .rotational = true}));
  EXPECT_EQ(limits(1),
            (DeviceLimits{.max_request_bytes = 128_KiB, .queue_requests = 1023, .poll_queues = true}));
}

TEST_F(DeviceLimitsTest, of_a_partition_are_its_disks) {
  add_disk("sda", 0, {.max_sectors_kb = 512, .nr_requests = 64});
  add_partition("sda", "sda1", 1);
  ASSERT_TRUE(limits(1));
  EXPECT_EQ(limits(1), limits(0));
}

TEST_F(DeviceLimitsTest, of_a_device_made_of_others_are_what_every_member_allows) {
  add_disk("nvme0n1", 0, {.max_sectors_kb = 256, .nr_requests = 1023, .io_poll = 1});
  add_disk("sda", 1, {.max_sectors_kb = 1024, .nr_requests = 32, .rotational = 1});
  add_partition("sda", "sda1", 2);
  add_disk("dm-0", 3, {.max_sectors_kb = 512, .nr_requests = 128, .io_poll = 1});
  add_member("dm-0", "nvme0n1");
  add_member("dm-0", "sda/sda1");
  add_disk("md0", 4, {.max_sectors_kb = 2048, .nr_requests = 128});
  add_member("md0", "dm-0");
  const DeviceLimits weakest{.max_request_bytes = 256_KiB, .queue_requests = 32, .rotational = true};
  EXPECT_EQ(limits(3), weakest);
  EXPECT_EQ(limits(4), weakest);
}

TEST_F(DeviceLimitsTest, what_is_no_block_device_has_none) {
  EXPECT_EQ(limits(7), std::nullopt);
}

TEST(IoShape, is_what_the_options_say) {
  EXPECT_EQ(choose_shape({.queue_depth = 3, .request_bytes = 1000}, std::nullopt),
            (IoShape{.queue_depth = 3, .request_bytes = 1000}));
}

TEST(IoShape, comes_from_the_device_where_the_options_leave_it_open) {
  const auto chosen = [](Bytes max_request_bytes, std::uint32_t requests) {
    return choose_shape({}, DeviceLimits{.max_request_bytes = max_request_bytes, .queue_requests = requests});
  };
  EXPECT_EQ(chosen(128_KiB, 1023).request_bytes, 2_MiB);
  EXPECT_EQ(chosen(256_KiB, 1023).request_bytes, 4_MiB);
  EXPECT_EQ(chosen(4_MiB, 256).request_bytes, 8_MiB);
  EXPECT_EQ(chosen(4_KiB, 256).request_bytes, 2_MiB);
  EXPECT_EQ(chosen(1_MiB, 1023).queue_depth, 32u);
  EXPECT_EQ(chosen(1_MiB, 16).queue_depth, 16u);
  EXPECT_EQ(chosen(1_MiB, 1).queue_depth, 4u);
  EXPECT_EQ(choose_shape({}, std::nullopt).queue_depth, 32u);
}

TEST(IoShape, bounds_the_bytes_in_flight_unless_the_depth_is_given) {
  EXPECT_EQ(choose_shape({}, std::nullopt).in_flight_bytes, 64_MiB);
  EXPECT_EQ(choose_shape({.queue_depth = 64}, std::nullopt).in_flight_bytes, ~Bytes{0});
}

}  // namespace
}  // namespace headrace::aio
