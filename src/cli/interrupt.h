// Ctrl-C and SIGUSR1 (which mpirun forwards to every rank) as a question that is asked between two pieces of
// work. The second one ends the process at once, as the first does without this.
#pragma once

#include <signal.h>

#include <array>

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
  static constexpr std::array handled_ = {SIGINT, SIGUSR1};
  std::array<struct sigaction, handled_.size()> previous_{};
};

}  // namespace headrace::cli
