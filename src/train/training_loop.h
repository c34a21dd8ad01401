// The steps of a run, from the session's state to the last step or a stop.
#pragma once

#include <optional>

#include "src/train/metrics.h"
#include "src/train/progress.h"
#include "src/train/session.h"
#include "src/train/stop_signals.h"

namespace headrace {

// What the end of a run reports beside its summary.
struct RunOutcome {
  bool stopped = false, terminated = false;  // by a signal; by SIGTERM
  std::optional<double> first_loss, last_loss, eval_loss;
  Bytes nvme_read_bytes = 0, nvme_written_bytes = 0;
  std::uint64_t steps = 0, skipped_steps = 0;
  std::uint64_t skipped_in_a_row = 0;     // at the end
  std::optional<std::string> checkpoint;  // the last one saved
  std::string save_failure;               // of the last save; empty where it did not fail
};

// Saves checkpoints on the way, at the end and when stopped; one that fails is a warning, and the run goes
// on. Error when the gradient is not finite for so many steps in a row that no later one can help.
RunOutcome run_steps(Session& session, const StopSignals& signals, MetricsFile& metrics, Progress& progress);

// Mean loss over the fixed windows of the held-out text (a collective).
double evaluate(Session& session);

}  // namespace headrace
