#include "headrace/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "src/train/metrics.h"
#include "src/train/pinned_resume.h"
#include "src/train/progress.h"
#include "src/train/report.h"
#include "src/train/session.h"
#include "src/train/training_loop.h"
#include "src/train/verdict.h"

namespace headrace {
namespace {

RunSummary summarise(Session& session) {
  RunSummary summary;
  summary.steps = session.state.iteration;
  summary.state_hash = session.engine->state_hash(session.state);
  summary.parameters = session.engine->parameter_numel();
  summary.planned = session.inputs.plan.memory;
  summary.device_peak = session.engine->device_budget().peak();
  summary.host_peak = session.engine->host_budget().peak();
  summary.peak_rss_bytes = peak_rss_bytes();
  Communicator& communicator = *session.backends.communicator;
  largest_of_ranks(summary.device_peak.bytes, communicator, *session.backends.device);
  largest_of_ranks(summary.host_peak.bytes, communicator, *session.backends.device);
  largest_of_ranks({&summary.peak_rss_bytes, 1}, communicator, *session.backends.device);
  return summary;
}

// Why the last save failed was said when it did.
int exit_status(const RunOutcome& outcome, bool speaks) {
  if (outcome.save_failure.empty()) return outcome.stopped ? StopSignals::exit_status(outcome.terminated) : 0;
  if (speaks)
    fmt::print(stderr, "headrace: the last checkpoint could not be saved. {}\n",
               outcome.checkpoint ? fmt::format("The newest is {}.", *outcome.checkpoint)
                                  : "No checkpoint of this run was.");
  return 1;
}

int run(Session& session, StopSignals& signals) {
  const ResolvedOptions& options = session.options;
  const bool speaks = session.rank() == 0;
  MetricsFile metrics(speaks ? options.metrics_path : "");
  session.open_backends(signals);
  log_info(start_report(session));
  session.build(signals);
  if (session.goes_on())
    log_info(fmt::format("continues after step {}", session.state.iteration));
  else
    metrics.start_over();  // not before the store is ours: another job may write there
  RunOutcome outcome;
  {
    Progress progress(Progress::style_for(options.quiet, session.rank()), options.steps,
                      session.state.iteration, options.log_every);
    signals.begin_steps();
    outcome = run_steps(session, signals, metrics, progress);
  }
  if (session.inputs.held_out && !outcome.eval_loss && !outcome.stopped)
    outcome.eval_loss = evaluate(session);
  refuse_lost_weights(options, outcome, session.state.iteration);
  const RunSummary summary = summarise(session);
  metrics.write(summary);
  if (speaks) fmt::print("{}", end_report(session, outcome, summary));
  std::fflush(stdout);
  return exit_status(outcome, speaks);
}

int run_unless_stopped(Session& session, StopSignals& signals) {
  try {
    return run(session, signals);
  } catch (const StoppedBeforeStart& stopped) {
    if (session.rank() == 0) log_warning(stopped.what());
    return StopSignals::exit_status(signals.terminated());
  }
}

int exit_status(const std::exception& error) {
  if (dynamic_cast<const DoesNotFit*>(&error) != nullptr) return 3;
  return dynamic_cast<const UsageError*>(&error) != nullptr ? 2 : 1;
}

}  // namespace

int report_error(const std::exception& error, const LaunchInfo& launch) {
  // The launcher ends every rank soon after the first one fails.
  constexpr auto time_for_rank_0 = std::chrono::milliseconds(1500);
  if (launch.rank != 0) std::this_thread::sleep_for(time_for_rank_0);
  const std::string rank = launch.rank == 0 ? "" : fmt::format("rank {}: ", launch.rank);
  std::string text = fmt::format("headrace: {}{}", rank, error.what());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  fmt::print(stderr, "{}\n", text);
  std::fflush(stderr);
  return exit_status(error);
}

int train(const ResolvedOptions& given) {
  set_log_rank(given.launch.rank);
  set_log_level(given.quiet ? LogLevel::quiet : LogLevel::normal);
  const ResolvedOptions options = with_pinned_resume(given);
  for (const std::string& note : options.notes) log_info(note);
  StopSignals signals;
  if (options.launch.size > 1) signals.begin_connecting();
  Session session(options, check_inputs(options));
  if (options.launch.size == 1) return run_unless_stopped(session, signals);
  try {
    return run_unless_stopped(session, signals);
  } catch (const std::exception& error) {
    // Unwinding the session would wait for ranks that wait for this one: the launcher ends them when this
    // process ends.
    signals.begin_failing();
    const int status = report_error(error, options.launch);
    std::_Exit(status);
  }
}

}  // namespace headrace
