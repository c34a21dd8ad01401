// Signals of a run. SIGINT and SIGUSR1 ask for a stop after the step in progress; a second SIGINT ends the
// process at once. While a run prepares, one is enough and ends it with status 130: nothing is replaced yet.
// SIGTERM ends it at once with status 143: what the last commit wrote stays whole.
#pragma once

#include <exception>

namespace headrace {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // In between a signal waits: a rank that ends while ranks and launcher connect can leave mpirun hanging.
  void begin_connecting();
  void end_connecting();
  // From here on a signal asks, and no longer ends the process by itself: what requested() does not say right
  // after this call comes too late to keep what is replaced.
  void begin_replacing();
  void begin_steps();  // there is a step to finish
  bool requested() const;
};

// A stop was asked for while the run prepared.
class StoppedBeforeStart : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped before the first step; nothing was replaced"; }
};

}  // namespace headrace
