// How an engine cuts transfers into requests, and how much of them it has at a device at once.
#pragma once

#include <cstdint>
#include <string_view>

#include "headrace/io_engine.h"

namespace headrace {

struct IoShape {
  std::uint32_t queue_depth = 0;      // requests in flight
  Bytes request_bytes = 0;            // a larger transfer is several requests
  Bytes in_flight_bytes = ~Bytes{0};  // no request is added to this many or more
  bool operator==(const IoShape&) const = default;
};

inline constexpr std::uint32_t most_queue_depth = 4096;       // of IoEngineOptions
inline constexpr std::uint32_t most_io_threads = 64;          // requests that "threads" has in flight
inline constexpr Bytes least_request_bytes = Bytes{2} << 20;  // where the engine chooses the size

// Of the engine with this name, made with these options, on a block device (IoFile::id). Files of one device
// share it.
IoShape io_shape(std::string_view engine, const IoEngineOptions& options, std::uint64_t device);

}  // namespace headrace
