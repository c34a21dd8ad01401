#include "src/cli/inspect_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace headrace::cli {
namespace {

using namespace std::chrono_literals;
constexpr auto redraw = 250ms;  // of a terminal
constexpr auto another_line = 5s;

}  // namespace

InspectProgress::InspectProgress()
    : terminal_(::isatty(STDERR_FILENO) == 1), next_(Clock::now() + (terminal_ ? redraw : another_line)) {}

void InspectProgress::checked(Bytes bytes, Bytes total) {
  bytes_ = bytes;
  total_ = total;
  show([this] { return "checked " + so_far(); });
}

void InspectProgress::repaired(Bytes bytes, Bytes total) {
  bytes_ = bytes;
  total_ = total;
  show([this] { return "repairing: " + so_far(); });
}

void InspectProgress::show(const std::function<std::string()>& line) {
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? redraw : another_line);
  fmt::print(stderr, "{}{}{}", terminal_ ? "\r\x1b[K" : "", line(), terminal_ ? "" : "\n");
  std::fflush(stderr);
  drawn_ = terminal_;
}

void InspectProgress::erase() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

std::string InspectProgress::so_far() const {
  return fmt::format("{} of {}", format_bytes(bytes_), format_bytes(total_));
}

IoTicket RepairEngine::submit(IoDirection direction, const IoFile& file, std::uint64_t offset,
                              HostLease buffer, Bytes bytes) {
  if (interrupt_.requested()) throw RepairStopped{};
  progress_.show([this] { return "repairing: " + so_far(); });
  return io_.submit(direction, file, offset, std::move(buffer), bytes);
}

std::string RepairEngine::so_far() const {
  const IoCounters counters = io_.counters();
  const std::string read = format_bytes(counters.read_bytes);
  return fmt::format("{} read, {} written",
                     bytes_to_read_ >= counters.read_bytes
                         ? fmt::format("{} of {}", read, format_bytes(bytes_to_read_))
                         : read,
                     format_bytes(counters.written_bytes));
}

}  // namespace headrace::cli
