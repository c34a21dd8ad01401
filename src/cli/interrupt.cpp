#include "src/cli/interrupt.h"

#include <atomic>

namespace headrace::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may only touch lock-free state");

}  // namespace

Interrupt::Interrupt(Handles handles) {
  interrupted = false;
  std::vector<int> signals = {SIGINT, SIGUSR1};
  if (handles == Handles::termination_too) signals.push_back(SIGTERM);
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (const int signal : signals) {
    previous_.emplace_back(signal, action);
    ::sigaction(signal, &action, &previous_.back().second);
  }
}

Interrupt::~Interrupt() {
  for (const auto& [signal, before] : previous_) ::sigaction(signal, &before, nullptr);
}

bool Interrupt::requested() const {
  return interrupted;
}

}  // namespace headrace::cli
