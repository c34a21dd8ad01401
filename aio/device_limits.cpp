#include "aio/device_limits.h"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace headrace::aio {
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::optional<DeviceLimits> limits_in(const fs::path& queue) {
  const auto kib = read_number(queue / "max_sectors_kb");
  if (!kib) return std::nullopt;
  return DeviceLimits{
      .max_request_bytes = *kib << 10,
      .queue_requests = static_cast<std::uint32_t>(read_number(queue / "nr_requests").value_or(0)),
      .rotational = read_number(queue / "rotational").value_or(0) != 0,
      .poll_queues = read_number(queue / "io_poll").value_or(0) != 0};
}

// A device made of others is as its weakest member, and its own queue says how requests are cut.
std::optional<DeviceLimits> limits_of(const fs::path& device, int depth) {
  constexpr int max_depth = 8;  // a loop of links would be the kernel's mistake
  std::error_code ignored;
  const bool partition = fs::exists(device / "partition", ignored);
  auto limits = limits_in((partition ? device / ".." : device) / "queue");
  if (!limits || partition || depth == max_depth) return limits;
  for (const auto& entry : fs::directory_iterator(device / "slaves", ignored)) {
    const auto member = limits_of(fs::canonical(entry.path(), ignored), depth + 1);
    if (!member) continue;
    const bool unset = limits->queue_requests == 0;
    limits->queue_requests =
        unset ? member->queue_requests : std::min(limits->queue_requests, member->queue_requests);
    limits->max_request_bytes = std::min(limits->max_request_bytes, member->max_request_bytes);
    limits->rotational = limits->rotational || member->rotational;
    limits->poll_queues = limits->poll_queues && member->poll_queues;
  }
  return limits;
}

constexpr std::uint32_t usual_depth = 32;
constexpr Bytes usual_request_bytes = Bytes{2} << 20;
constexpr Bytes usual_in_flight_bytes = Bytes{64} << 20;

std::uint32_t choose_depth(const std::optional<DeviceLimits>& limits) {
  if (!limits || limits->queue_requests == 0) return usual_depth;
  return std::clamp(limits->queue_requests, 4u, usual_depth);
}

Bytes choose_request_bytes(const std::optional<DeviceLimits>& limits) {
  constexpr Bytes largest = Bytes{8} << 20;
  constexpr Bytes device_requests = 16;  // in one of ours
  if (!limits) return usual_request_bytes;
  return std::clamp(device_requests * limits->max_request_bytes, usual_request_bytes, largest);
}

}  // namespace

std::optional<DeviceLimits> read_device_limits(std::uint64_t device, const std::string& sysfs) {
  std::error_code error;
  const fs::path path =
      fs::canonical(fmt::format("{}/dev/block/{}:{}", sysfs, major(device), minor(device)), error);
  if (error) return std::nullopt;
  return limits_of(path, 0);
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
