#include "src/train/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr std::string_view overflow_advice =
    "The weights have most likely overflowed, and resuming would not mend them: start again with a smaller "
    "--learning-rate, more --warmup-steps, or --clip.";
constexpr std::string_view fixed_scale_advice =
    "The fixed loss scale may be too large for fp16: start again with a smaller --loss-scale, or with 0, "
    "which finds it while training.";

std::string_view skipping_advice(const EngineOptions& options) {
  return options.dtype == DType::f16 && options.loss_scale.fixed > 1 ? fixed_scale_advice : overflow_advice;
}

// Of any parameter; none where the optimizer divides by nothing.
std::optional<double> smallest_epsilon(const EngineOptions& options) {
  const OptimizerArguments& optimizer = options.optimizer;
  if (optimizer.kind != OptimizerKind::adam && optimizer.kind != OptimizerKind::adagrad) return {};
  double smallest = optimizer.epsilon;
  for (const ParameterGroup& group : options.groups)
    smallest = std::min(smallest, group.epsilon.value_or(optimizer.epsilon));
  return smallest;
}

// Below it a gradient whose square is 0 in fp32 can still be divided by epsilon alone to something huge.
constexpr double tiny_epsilon = 1e-16;

std::string lost_weights_advice(const EngineOptions& options) {
  constexpr std::string_view start_again =
      "Resuming would not mend the weights: start again with a larger --epsilon, 1e-8 for one.";
  if (const auto epsilon = smallest_epsilon(options); epsilon && *epsilon == 0)
    return fmt::format("The epsilon is 0: an element without a gradient is updated by 0 / 0. {}",
                       start_again);
  if (const auto epsilon = smallest_epsilon(options); epsilon && *epsilon < tiny_epsilon)
    return fmt::format(
        "The epsilon of {:g} is so small that an element whose squared gradients are 0 in fp32 is updated by "
        "its gradient / {:g}. {}",
        *epsilon, *epsilon, start_again);
  if (options.dtype != DType::f16) return std::string(overflow_advice);
  return fmt::format("{} Activations may have overflowed too: --dtype bf16 has a wider range than fp16.",
                     overflow_advice);
}

}  // namespace

void refuse_endless_skipping(const EngineOptions& options, const RunOutcome& outcome, std::uint64_t step) {
  // A single batch can overflow; weights that have overflowed do so in every step to come.
  constexpr std::uint64_t patience = 20;
  if (outcome.skipped_in_a_row < patience || options.searches_loss_scale()) return;
  throw Error(fmt::format(
      "the gradient was not finite in the last {} steps, {} to {}: they were skipped, and the weights "
      "are those after step {}. {}",
      patience, step - patience + 1, step, step - patience, skipping_advice(options)));
}

void refuse_skipping_all(const Session& session, const RunOutcome& outcome) {
  if (outcome.steps == 0 || outcome.skipped_steps < outcome.steps || outcome.stopped) return;
  const EngineOptions& options = session.options.engine;
  // Where the scale is searched, the last steps of a run that goes on may all be skipped.
  if (options.searches_loss_scale() && session.engine->steps_applied() > 0) return;
  const std::string what = fmt::format(
      "every step of this run was skipped, because its gradient was not finite: no weight was "
      "changed in {} steps.",
      outcome.steps);
  if (!options.searches_loss_scale()) throw Error(fmt::format("{} {}", what, skipping_advice(options)));
  throw Error(fmt::format(
      "{} The loss scale has come down to {:g}, and was still too large: give more --steps, or a smaller "
      "--initial-scale-power.",
      what, session.state.loss_scale.scale));
}

void refuse_lost_weights(const ResolvedOptions& options, const RunOutcome& outcome, std::uint64_t step) {
  std::vector<std::string> lost;
  // A skipped step with a finite loss is none: a loss scale that is searched overflows now and then.
  if (outcome.last_loss && !std::isfinite(*outcome.last_loss))
    lost.push_back(fmt::format("the training loss of step {}", step));
  if (outcome.eval_loss && !std::isfinite(*outcome.eval_loss)) lost.emplace_back("the held-out loss");
  if (lost.empty()) return;
  throw Error(fmt::format("the run has come to nothing: {} {} not finite. {}", fmt::join(lost, " and "),
                          lost.size() == 1 ? "is" : "are", lost_weights_advice(options.engine)));
}

}  // namespace headrace
