// Signals of a run. SIGINT and SIGUSR1 ask for a stop after the step in progress; a second SIGINT ends the
// process at once. SIGTERM ends it at once with status 143: what the last commit wrote stays whole.
#pragma once

namespace headrace {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool requested() const;
};

}  // namespace headrace
