// Ctrl-C and SIGUSR1 (which mpirun forwards to every rank) as a question that is asked between two pieces of
// work. The second one ends the process at once, as the first does without this.
#pragma once

#include <signal.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace headrace::cli {

class Interrupt {
 public:
  // SIGTERM too, by work that would leave files behind.
  enum class Handles : std::uint8_t { interrupt, termination_too };
  explicit Interrupt(Handles handles = Handles::interrupt);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  bool requested() const;

  static constexpr int exit_status = 130;

 private:
  std::vector<std::pair<int, struct sigaction>> previous_;  // of each signal
};

}  // namespace headrace::cli
