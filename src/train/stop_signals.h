// Signals of a run. SIGINT, SIGTERM and SIGUSR1 ask for a stop after the step in progress, which is saved; a
// second SIGINT or SIGTERM ends the process at once, and what the last commit and the last save wrote stays
// whole. While a run prepares, one is enough and ends it: nothing is replaced yet. A launcher sends SIGTERM
// to ranks that it gives up, so before the first step that one always ends the process.
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
  void begin_steps();    // there is a step to finish
  void begin_failing();  // a signal ends the process again: there is nothing to wait for
  bool requested() const;
  bool terminated() const;  // one of the requests was SIGTERM
  // Of a process that was stopped, as a shell would say it: 130 (SIGINT), 143 (SIGTERM).
  static int exit_status(bool terminated) { return terminated ? 143 : 130; }
};

// A stop was asked for while the run prepared.
class StoppedBeforeStart : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped before the first step; nothing was replaced"; }
};

}  // namespace headrace
