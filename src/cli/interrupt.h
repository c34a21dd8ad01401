// Ctrl-C as a question that is asked between two pieces of work. A second Ctrl-C ends the process at once, as
// it does without this.
#pragma once

#include <signal.h>

namespace headrace::cli {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  bool requested() const;

  static constexpr int exit_status = 130;

 private:
  struct sigaction previous_ {};
};

}  // namespace headrace::cli
