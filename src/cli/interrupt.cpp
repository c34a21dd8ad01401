#include "src/cli/interrupt.h"

#include <atomic>

namespace headrace::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may only touch lock-free state");

}  // namespace

Interrupt::Interrupt() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  ::sigaction(SIGINT, &action, &previous_);
}

Interrupt::~Interrupt() {
  ::sigaction(SIGINT, &previous_, nullptr);
}

bool Interrupt::requested() const {
  return interrupted;
}

}  // namespace headrace::cli
