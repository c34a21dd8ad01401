#include "aio/device_limits.h"

#include <gtest/gtest.h>

namespace headrace::aio {
namespace {

using namespace headrace::literals;
using Kind = BlockDevice::Kind;

struct Queue {
  std::uint64_t max_sectors_kb, nr_requests;
  bool rotational = false, polled = false;
};
BlockDevice device(Kind kind, const Queue& queue, std::vector<BlockDevice> below = {}) {
  return {.kind = kind,
          .below = std::move(below),
          .rotational = queue.rotational,
          .polled = queue.polled,
          .queued_requests = queue.nr_requests,
          .request_kib = queue.max_sectors_kb};
}
BlockDevice disk(const Queue& queue) {
  return device(Kind::disk, queue);
}
BlockDevice partition_of(const BlockDevice& whole) {
  return {.kind = Kind::partition, .below = {whole}};
}

TEST(DeviceLimits, of_a_disk_are_its_queues) {
  EXPECT_EQ(limits_of(disk({.max_sectors_kb = 1280, .nr_requests = 256, .rotational = true})),
            (DeviceLimits{.max_request_bytes = 1280_KiB, .queue_requests = 256, .rotational = true}));
  EXPECT_EQ(limits_of(disk({.max_sectors_kb = 128, .nr_requests = 1023, .polled = true})),
            (DeviceLimits{.max_request_bytes = 128_KiB, .queue_requests = 1023, .poll_queues = true}));
}

TEST(DeviceLimits, of_a_partition_are_its_disks) {
  const BlockDevice whole = disk({.max_sectors_kb = 512, .nr_requests = 64});
  ASSERT_TRUE(limits_of(whole));
  EXPECT_EQ(limits_of(partition_of(whole)), limits_of(whole));
}

TEST(DeviceLimits, of_a_device_made_of_others_are_what_every_member_allows) {
  const BlockDevice fast = disk({.max_sectors_kb = 256, .nr_requests = 1023, .polled = true});
  const BlockDevice slow = disk({.max_sectors_kb = 1024, .nr_requests = 32, .rotational = true});
  const BlockDevice volume = device(Kind::volume, {.max_sectors_kb = 512, .nr_requests = 128, .polled = true},
                                    {fast, partition_of(slow)});
  const BlockDevice array = device(Kind::array, {.max_sectors_kb = 2048, .nr_requests = 128}, {volume});
  const DeviceLimits weakest{.max_request_bytes = 256_KiB, .queue_requests = 32, .rotational = true};
  EXPECT_EQ(limits_of(volume), weakest);
  EXPECT_EQ(limits_of(array), weakest);
  EXPECT_EQ(limits_of(partition_of(array)), weakest);
}

TEST(DeviceLimits, of_a_device_without_a_queue_of_its_own_are_its_members) {
  const BlockDevice array = device(Kind::array, {.max_sectors_kb = 512, .nr_requests = 0},
                                   {disk({.max_sectors_kb = 1024, .nr_requests = 32})});
  EXPECT_EQ(limits_of(array), (DeviceLimits{.max_request_bytes = 512_KiB, .queue_requests = 32}));
}

TEST(DeviceLimits, of_a_device_that_does_not_say_are_not_known) {
  EXPECT_EQ(limits_of({.name = "sda"}), std::nullopt);
  EXPECT_EQ(limits_of({.kind = Kind::partition, .name = "sda1"}), std::nullopt);
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

TEST(IoShape, of_threads_has_no_more_requests_than_threads) {
  EXPECT_EQ(io_shape("threads", {.queue_depth = 128}, 0).queue_depth, most_io_threads);
  EXPECT_EQ(io_shape("threads", {.queue_depth = 8}, 0).queue_depth, 8u);
  EXPECT_EQ(io_shape("io_uring", {.queue_depth = 128}, 0).queue_depth, 128u);
}

TEST(IoShape, bounds_the_bytes_in_flight_unless_the_depth_is_given) {
  EXPECT_EQ(choose_shape({}, std::nullopt).in_flight_bytes, 64_MiB);
  EXPECT_EQ(choose_shape({.queue_depth = 64}, std::nullopt).in_flight_bytes, ~Bytes{0});
}

}  // namespace
}  // namespace headrace::aio
