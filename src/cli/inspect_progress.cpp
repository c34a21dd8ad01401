#include "src/cli/inspect_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace headrace::cli {
namespace {

using namespace std::chrono_literals;
constexpr auto redraw = 250ms;  // of a terminal
constexpr auto another_line = 5s;
constexpr auto poll = 50ms;

}  // namespace

InspectProgress::InspectProgress()
    : terminal_(::isatty(STDERR_FILENO) == 1), next_(Clock::now() + (terminal_ ? redraw : another_line)) {}

void InspectProgress::checked(Bytes bytes, Bytes total) {
  bytes_ = bytes;
  total_ = total;
  if (Clock::now() >= next_) show("checked " + so_far());
}

void InspectProgress::show(std::string_view line) {
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? redraw : another_line);
  fmt::print(stderr, "{}{}{}", terminal_ ? "\r\x1b[K" : "", line, terminal_ ? "" : "\n");
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

RepairWatch::RepairWatch(const IoEngine& io)
    : io_(io), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void RepairWatch::run(const std::stop_token& stop) {
  InspectProgress progress;
  const auto so_far = [&] {
    const IoCounters counters = io_.counters();
    return fmt::format("{} read, {} written", format_bytes(counters.read_bytes),
                       format_bytes(counters.written_bytes));
  };
  while (!stop.stop_requested()) {
    if (interrupt_.requested()) {
      progress.erase();
      fmt::print(stderr, "headrace: stopped after {}; the repair can be started again\n", so_far());
      std::fflush(nullptr);
      std::_Exit(Interrupt::exit_status);
    }
    progress.show("repairing: " + so_far());
    std::this_thread::sleep_for(poll);
  }
}

}  // namespace headrace::cli
