// What the kernel says of the block device under a file, and the shape of requests that follows from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/io_engine.h"

namespace headrace::aio {

struct DeviceLimits {
  Bytes max_request_bytes = 0;  // larger requests are cut by the block layer
  std::uint32_t queue_requests = 0;
  bool rotational = false;
  bool poll_queues = false;
  bool operator==(const DeviceLimits&) const = default;
};

// Of the disk that holds the device: a partition's disk, and for a mapped or striped device (dm, md) what all
// its members allow. Empty for what is no block device (tmpfs, nfs, btrfs' own numbers). `sysfs` is /sys
// but in tests.
std::optional<DeviceLimits> read_device_limits(std::uint64_t device, const std::string& sysfs = "/sys");

struct IoShape {
  std::uint32_t queue_depth = 0;
  Bytes request_bytes = 0;
  bool operator==(const IoShape&) const = default;
};

// What the options leave to choose (0). Requests as large as the device takes whole, for their cost to the CPU,
// yet small enough that a read is not kept waiting by a long write; as many as fill the device's queue and no
// more: what waits here can still be put in order.
IoShape choose_shape(const IoEngineOptions& options, const std::optional<DeviceLimits>& limits);

}  // namespace headrace::aio
