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
  for (std::size_t s = 0; s < handled_.size(); ++s) ::sigaction(handled_[s], &action, &previous_[s]);
}

Interrupt::~Interrupt() {
  for (std::size_t s = 0; s < handled_.size(); ++s) ::sigaction(handled_[s], &previous_[s], nullptr);
}

bool Interrupt::requested() const {
  return interrupted;
}

}  // namespace headrace::cli
