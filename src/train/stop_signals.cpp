#include "src/train/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string_view>

namespace headrace {
namespace {

enum Phase : int { preparing, connecting, replacing, stepping, failing };
std::atomic<int> phase{preparing}, stop_requests{0}, interrupts{0}, terminations{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handlers may only touch lock-free state");

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void end_before_the_first_step() {
  if (interrupts.load() > 0) say("\nheadrace: stopped before the first step; nothing was replaced\n");
  ::_exit(StopSignals::exit_status(false));
}

// Only calls that are safe in a handler: write, _exit, lock-free atomics.
void handle(int signal) {
  const int before = interrupts.load() + terminations.load();
  if (signal == SIGINT) interrupts.fetch_add(1);
  if (signal == SIGTERM) terminations.fetch_add(1);
  if (signal != SIGUSR1 && before > 0) ::_exit(StopSignals::exit_status(signal == SIGTERM));
  if (signal == SIGTERM && phase.load() != stepping) ::_exit(StopSignals::exit_status(true));
  const bool first =
      stop_requests.fetch_add(1) == 0;  // before the phase is read: begin_replacing() reads after
  const int now = phase.load();
  if (now == preparing) end_before_the_first_step();
  if (now == failing && signal == SIGINT) ::_exit(StopSignals::exit_status(false));
  if (!first || signal != SIGINT || now == connecting || now == failing) return;
  say(now == replacing ? "\nheadrace: stopping after the first step; press Ctrl-C again to end at once\n"
                       : "\nheadrace: stopping after this step; press Ctrl-C again to end at once\n");
}

constexpr std::array handled = {SIGINT, SIGUSR1, SIGTERM};
std::array<struct sigaction, handled.size()> previous;

}  // namespace

StopSignals::StopSignals() {
  phase = preparing;
  stop_requests = 0;
  interrupts = 0;
  terminations = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (std::size_t s = 0; s < handled.size(); ++s) ::sigaction(handled[s], &action, &previous[s]);
}

StopSignals::~StopSignals() {
  for (std::size_t s = 0; s < handled.size(); ++s) ::sigaction(handled[s], &previous[s], nullptr);
}

void StopSignals::begin_connecting() {
  phase = connecting;
}

void StopSignals::end_connecting() {
  phase = preparing;  // before the requests are read: the handler reads it after
  if (requested()) end_before_the_first_step();
}

void StopSignals::begin_replacing() {
  phase = replacing;
}

void StopSignals::begin_steps() {
  phase = stepping;
}

void StopSignals::begin_failing() {
  phase = failing;
}

bool StopSignals::requested() const {
  return stop_requests.load() > 0;
}

bool StopSignals::terminated() const {
  return terminations.load() > 0;
}

}  // namespace headrace
