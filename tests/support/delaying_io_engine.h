// A slower disk: each transfer takes at least `fixed` plus its bytes at `bytes_per_second`, one transfer
// after the other per direction, or in one line for both (shared_path), in the order of submission. The bytes
// move through `inner` at once; wait() ends, and done() is true, only when the model says so.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "headrace/io_engine.h"

namespace headrace::testing {

struct DeviceSpeed {
  std::chrono::nanoseconds fixed{0};
  double bytes_per_second = 0;  // 0: no limit
};

struct DelayPlan {
  DeviceSpeed read{}, write{};
  bool shared_path = false;
  // The first read that touches this byte of a file takes so long, beside the others.
  struct Late {
    std::uint64_t offset = 0;
    std::chrono::nanoseconds time{0};
  };
  std::optional<Late> late{};
};

// name() is "delaying"; wait_seconds of counters() includes the delays.
std::unique_ptr<IoEngine> make_delaying_engine(std::unique_ptr<IoEngine> inner, const DelayPlan& plan);

}  // namespace headrace::testing
