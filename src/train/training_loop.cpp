#include "src/train/training_loop.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/log.h"
#include "src/train/run_saves.h"
#include "src/train/verdict.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

// Waits for the lanes before memory that they use goes away; a failure was or will be thrown elsewhere.
class LanesDrain {
 public:
  explicit LanesDrain(Device& device) : device_(device) {}
  ~LanesDrain() {
    try {
      device_.synchronize();
    } catch (...) {
    }
  }
  LanesDrain(const LanesDrain&) = delete;
  LanesDrain& operator=(const LanesDrain&) = delete;

 private:
  Device& device_;
};

// Host memory that is fast to copy during its life.
class PinnedRange {
 public:
  PinnedRange(Device& device, std::span<std::byte> memory) : device_(device), memory_(memory) {
    if (!memory_.empty()) device_.pin(memory_);
  }
  ~PinnedRange() {
    if (!memory_.empty()) device_.unpin(memory_);
  }
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;

 private:
  Device& device_;
  std::span<std::byte> memory_;
};

// One optimizer step: forward and backward of every micro-batch, update, commit.
class StepRunner {
 public:
  explicit StepRunner(Session& session)
      : session_(session),
        losses_(session.options.batch.accumulation),
        pinned_(*session.backends.device, session.options.engine.pin_memory
                                              ? std::as_writable_bytes(std::span(losses_))
                                              : std::span<std::byte>{}),
        drain_(*session.backends.device) {}
  StepMetrics run(const StopSignals& signals);

 private:
  void forward_backward(std::uint64_t micro_batch);
  double mean_loss() const;
  std::uint64_t schedule_step() const;

  Session& session_;
  std::vector<std::vector<std::int32_t>> tokens_;  // alive until the lanes are idle
  std::vector<float> losses_;
  PinnedRange pinned_;  // the losses arrive by themselves, not through a function in the lane
  LanesDrain drain_;    // the first to be destroyed
};

void StepRunner::forward_backward(std::uint64_t micro_batch) {
  const ResolvedOptions& options = session_.options;
  const BatchSizes& batch = options.batch;
  const std::uint64_t first = session_.state.data_position + micro_batch * batch.world * batch.micro +
                              static_cast<std::uint64_t>(session_.rank()) * batch.micro;
  const Corpus& corpus = session_.inputs.training;
  tokens_.push_back(read_samples(corpus.tokens, corpus.windows, session_.sequence(), first, batch.micro));
  session_.engine->begin_micro_batch();
  session_.model->forward_backward(tokens_.back().data(), static_cast<float>(session_.state.loss_scale.scale),
                                   &losses_[micro_batch]);
}

double StepRunner::mean_loss() const {
  double sum = 0;
  for (const float loss : losses_) sum += loss;
  return sum / static_cast<double>(losses_.size());
}

// Every step moves Headrace's own schedules on, an update that was applied those of DeepSpeed.
std::uint64_t StepRunner::schedule_step() const {
  return session_.options.schedule.of_deepspeed() ? session_.engine->steps_applied()
                                                  : session_.state.iteration;
}

StepMetrics StepRunner::run(const StopSignals& signals) {
  const ResolvedOptions& options = session_.options;
  const Clock::time_point start = Clock::now();
  const EngineCounters before = session_.engine->counters();
  tokens_.clear();
  for (std::uint64_t m = 0; m < options.batch.accumulation; ++m) forward_backward(m);

  StepMetrics metrics;
  metrics.loss_scale = session_.state.loss_scale.scale;
  metrics.learning_rate = learning_rate(options.schedule, schedule_step());
  session_.state.data_position += options.batch.global;
  ++session_.state.iteration;
  const StepResult result = session_.engine->step(metrics.learning_rate, session_.state);
  session_.backends.device->synchronize();

  metrics.step = session_.state.iteration;
  metrics.gradient_norm = result.gradient_norm;
  metrics.skipped = result.skipped;
  metrics.step_seconds = seconds_since(start);
  metrics.tokens_per_second =
      static_cast<double>(options.batch.global * session_.sequence()) / metrics.step_seconds;
  RankSample own = difference(session_.engine->counters(), before);
  own.loss = mean_loss();
  own.device_peak_bytes = session_.engine->device_budget().peak_total();
  own.host_peak_bytes = session_.engine->host_budget().peak_total();
  own.stop_requested = signals.requested() ? 1 : 0;
  own.terminated = signals.terminated() ? 1 : 0;
  metrics.ranks = combine_ranks(own, *session_.backends.communicator, *session_.backends.device);
  return metrics;
}

bool wants_evaluation(const ResolvedOptions& options, std::uint64_t step, bool last) {
  if (options.eval_path.empty()) return false;
  return last || (options.eval_every > 0 && step % options.eval_every == 0);
}

void note(RunOutcome& outcome, const StepMetrics& metrics) {
  if (!outcome.first_loss) outcome.first_loss = metrics.ranks.loss;
  outcome.last_loss = metrics.ranks.loss;
  if (metrics.eval_loss) outcome.eval_loss = metrics.eval_loss;
  outcome.nvme_read_bytes += metrics.ranks.nvme_read_bytes;
  outcome.nvme_written_bytes += metrics.ranks.nvme_written_bytes;
  ++outcome.steps;
  outcome.skipped_steps += metrics.skipped ? 1 : 0;
  outcome.skipped_in_a_row = metrics.skipped ? outcome.skipped_in_a_row + 1 : 0;
}

// The same on every rank: all of them end after the same step.
void note_stop(RunOutcome& outcome, const RankSample& ranks, bool last) {
  outcome.stopped = ranks.stop_requested > 0 && !last;
  outcome.terminated = outcome.stopped && ranks.terminated > 0;
}

}  // namespace

double evaluate(Session& session) {
  const ResolvedOptions& options = session.options;
  const BatchSizes& batch = options.batch;
  const Corpus& corpus = *session.inputs.held_out;
  const std::uint64_t windows = options.eval_batches * batch.world * batch.micro;
  double sum = 0;
  for (std::uint64_t b = 0; b < options.eval_batches; ++b) {
    const std::uint64_t first = (b * batch.world + static_cast<std::uint64_t>(session.rank())) * batch.micro;
    const auto tokens =
        read_samples(corpus.tokens, corpus.windows, session.sequence(), first, batch.micro, windows);
    float loss = 0;
    const LanesDrain drain(*session.backends.device);
    session.model->evaluate(tokens.data(), &loss);
    session.backends.device->synchronize();
    sum += loss;
  }
  session.backends.communicator->all_reduce(std::span<double>(&sum, 1), Traffic::control, "held-out loss");
  session.backends.device->synchronize();
  return sum / static_cast<double>(options.eval_batches * batch.world);
}

namespace {

void run_steps(Session& session, const StopSignals& signals, MetricsFile& metrics_file, Progress& progress,
               RunOutcome& outcome, RunSaves& saves) {
  const ResolvedOptions& options = session.options;
  StepRunner runner(session);
  while (session.state.iteration < options.steps && !outcome.stopped) {
    StepMetrics metrics = runner.run(signals);
    const bool last = metrics.step == options.steps;
    note_stop(outcome, metrics.ranks, last);
    if (outcome.stopped && session.rank() == 0)
      log_info(fmt::format("stopping after step {}, as a signal asked{}", metrics.step,
                           session.checkpointer ? ": it is saved" : ""));
    if (wants_evaluation(options, metrics.step, last)) metrics.eval_loss = evaluate(session);
    note(outcome, metrics);
    saves.after_step(last || outcome.stopped);
    metrics_file.write(metrics);
    progress.show(metrics);
    refuse_endless_skipping(options.engine, outcome, metrics.step);
  }
}

}  // namespace

RunOutcome run_steps(Session& session, const StopSignals& signals, MetricsFile& metrics, Progress& progress) {
  RunOutcome outcome;
  RunSaves saves(session, outcome);
  try {
    run_steps(session, signals, metrics, progress, outcome, saves);
  } catch (const std::exception& failure) {
    saves.end_failed(failure);
    throw;
  }
  refuse_skipping_all(session, outcome);
  return outcome;
}

}  // namespace headrace
