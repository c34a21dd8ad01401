#include "aio/device_limits.h"

#include <algorithm>

namespace headrace::aio {
namespace {

constexpr std::uint32_t usual_depth = 32;
constexpr Bytes usual_in_flight_bytes = Bytes{64} << 20;

std::uint32_t choose_depth(const std::optional<DeviceLimits>& limits) {
  if (!limits || limits->queue_requests == 0) return usual_depth;
  return std::clamp(limits->queue_requests, 4u, usual_depth);
}

Bytes choose_request_bytes(const std::optional<DeviceLimits>& limits) {
  constexpr Bytes largest = Bytes{8} << 20;
  constexpr Bytes device_requests = 16;  // in one of ours
  if (!limits) return least_request_bytes;
  return std::clamp(device_requests * limits->max_request_bytes, least_request_bytes, largest);
}

}  // namespace

// A device made of others is as its weakest member, and its own queue says how requests are cut.
std::optional<DeviceLimits> limits_of(const BlockDevice& device) {
  const BlockDevice& whole = device.whole();
  if (!whole.request_kib) return std::nullopt;
  DeviceLimits limits{.max_request_bytes = *whole.request_kib << 10,
                      .queue_requests = static_cast<std::uint32_t>(whole.queued_requests.value_or(0)),
                      .rotational = whole.rotational.value_or(false),
                      .poll_queues = whole.polled.value_or(false)};
  for (const BlockDevice& below : whole.below) {
    const auto member = limits_of(below);
    if (!member) continue;
    const bool unset = limits.queue_requests == 0;
    limits.queue_requests =
        unset ? member->queue_requests : std::min(limits.queue_requests, member->queue_requests);
    limits.max_request_bytes = std::min(limits.max_request_bytes, member->max_request_bytes);
    limits.rotational = limits.rotational || member->rotational;
    limits.poll_queues = limits.poll_queues && member->poll_queues;
  }
  return limits;
}

IoShape choose_shape(const IoEngineOptions& options, const std::optional<DeviceLimits>& limits) {
  IoShape shape{.queue_depth = options.queue_depth, .request_bytes = options.request_bytes};
  if (shape.request_bytes == 0) shape.request_bytes = choose_request_bytes(limits);
  if (shape.queue_depth == 0) {
    shape.queue_depth = choose_depth(limits);
    shape.in_flight_bytes = usual_in_flight_bytes;
  }
  return shape;
}

}  // namespace headrace::aio

namespace headrace {

IoShape io_shape(std::string_view engine, const IoEngineOptions& options, std::uint64_t device) {
  const auto found = block_device_of(device);
  IoShape shape = aio::choose_shape(options, found ? aio::limits_of(*found) : std::nullopt);
  if (engine == "threads") shape.queue_depth = std::min(shape.queue_depth, most_io_threads);
  return shape;
}

}  // namespace headrace
