// What the block device under a file allows, and the shape of requests that follows from it. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/block_device.h"
#include "headrace/io_shape.h"

namespace headrace::aio {

struct DeviceLimits {
  Bytes max_request_bytes = 0;  // larger requests are cut by the block layer
  std::uint32_t queue_requests = 0;
  bool rotational = false;
  bool poll_queues = false;
  bool operator==(const DeviceLimits&) const = default;
};

// A partition's are its disk's, those of a mapped or striped device (dm, md) what all its members allow.
// Empty where they are not known.
std::optional<DeviceLimits> limits_of(const BlockDevice& device);

// What the options leave to choose (0). Large requests, for each costs CPU time: the block layer cuts them
// for the device in one go. As many as fill the device and no more, in number and in bytes: what waits here
// can still be put in order.
IoShape choose_shape(const IoEngineOptions& options, const std::optional<DeviceLimits>& limits);

}  // namespace headrace::aio
