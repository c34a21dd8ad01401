// Settings that tune the use of cores, drives and the link.
#include <fmt/format.h>

#include "headrace/errors.h"
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"
#include "src/train/setting_values.h"

namespace headrace {

std::string_view name_of(IoKind kind) {
  constexpr std::string_view names[] = {"auto", "io_uring", "threads"};
  return names[static_cast<std::size_t>(kind)];
}

namespace settings {
namespace {

void set_io(Settings& settings, const ConfigValue& value) {
  settings.io = static_cast<IoKind>(value.choice({"auto", "io_uring", "threads"}));
}
Json get_io(const Settings& settings) {
  return name_of(settings.io);
}
void set_io_request(Settings& settings, const ConfigValue& value) {
  settings.io_request_bytes = buffer_bytes(value, 1);  // below a block of the file, it is one
}
void set_bandwidth(Settings& settings, const ConfigValue& value) {
  settings.link_bytes_per_second = rate_of(value);
  constexpr Bytes slowest = 1'000'000;  // far below any link; a step would take hours
  if (settings.link_bytes_per_second < slowest)
    throw UsageError(fmt::format(
        "{}: \"{}\" is less than the slowest link there is a use for, 1MB/s. Write a rate like 8GB/s.",
        value.key(), value.json().is_string() ? value.text() : value.json().dump()));
}

}  // namespace

std::vector<NativeSetting> machine_tuning() {
  return {
      {{"pin_memory", tuning, "BOOL",
        "lock host memory that is copied to and from the device (default true)"},
       set_boolean<&S::pin_memory>,
       get<&S::pin_memory>},
      {{"threads", tuning, "N", "CPU threads a rank computes with (default 0: its share of the cores)", true},
       set_count<&S::threads, 0, 4096>,
       get<&S::threads>},
      {{"io", tuning, "ENGINE", "auto, io_uring or threads (default auto)", true}, set_io, get_io},
      {{"require_io_uring", tuning, "",
        "where io_uring is refused, fail instead of doing its work on threads", true},
       set_boolean<&S::require_io_uring>,
       get<&S::require_io_uring>},
      {{"io_depth", tuning, "N", "requests in flight on a drive (default: the engine's choice)", true},
       set_count<&S::io_depth, 1, 4096>,
       get_optional<&S::io_depth>},
      {{"io_request", tuning, "SIZE", "one request to a drive (default: the engine's choice)", true},
       set_io_request,
       get_optional<&S::io_request_bytes>},
      {{"poll_completions", tuning, "",
        "poll the drive for completions (IOPOLL): lower latency, more CPU time; needs poll queues", true},
       set_boolean<&S::poll_completions>,
       get<&S::poll_completions>},
      {{"poll_submissions", tuning, "",
        "a thread of the kernel takes submissions (SQPOLL): no system calls, for a core", true},
       set_boolean<&S::poll_submissions>,
       get<&S::poll_submissions>},
      {{"link_bandwidth", tuning, "RATE", "paces CPU-device copies like a PCIe link: 8GB/s (default none)",
        true},
       set_bandwidth,
       get_size<&S::link_bytes_per_second>},
  };
}

}  // namespace settings
}  // namespace headrace
