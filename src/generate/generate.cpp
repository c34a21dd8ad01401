#include "headrace/generate.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/backends.h"
#include "headrace/cpu_pool.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/inference.h"
#include "src/generate/loaded_weights.h"
#include "src/generate/memory_needed.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;
using Ended = GeneratedSequence::Ended;

void check(const GenerateOptions& options, const ModelConfig& config) {
  if (options.prompt.empty()) throw UsageError("the prompt is empty: there is nothing to go on from.");
  for (std::size_t i = 0; i < options.prompt.size(); ++i)
    if (options.prompt[i] < 0 || options.prompt[i] >= config.vocabulary)
      throw UsageError(fmt::format("token {} of the prompt is {}: the model's vocabulary has ids 0 to {}.", i,
                                   options.prompt[i], config.vocabulary - 1));
  if (options.prompt.size() > static_cast<std::size_t>(config.max_positions))
    throw UsageError(fmt::format("the prompt has {} tokens, and the model has {} positions. Shorten it.",
                                 options.prompt.size(), config.max_positions));
}

InferenceOptions inference_options(const GenerateOptions& options, const WeightFacts& facts) {
  constexpr int rows_at_once = 256;
  const auto prompt = static_cast<std::int64_t>(options.prompt.size());
  const std::int64_t wanted = prompt + std::max(0, options.max_tokens - 1);  // the last one is not read
  return {.dtype = options.dtype.value_or(facts.dtype),
          .batch = options.count,
          .positions = static_cast<int>(std::min<std::int64_t>(wanted, facts.config.max_positions)),
          .tokens_at_once = std::max(1, rows_at_once / options.count)};
}

class Generation {
 public:
  Generation(const GenerateOptions& options, const GenerateEvents& events, const ModelConfig& config,
             Inference& inference, GenerateReport& report)
      : options_(options),
        events_(events),
        config_(config),
        inference_(inference),
        report_(report),
        next_(static_cast<std::size_t>(options.count)) {
    report_.sequences.resize(next_.size());
  }

  // The report's sequences end as `stopped` where this is left early.
  void run(int tokens_at_once) {
    auto start = Clock::now();
    if (!read_prompt(tokens_at_once)) return;
    report_.prompt_seconds = seconds_since(start), start = Clock::now();
    while (take_tokens()) {
      if (stopped()) return;
      append(next_, Inference::Logits::last);
    }
    report_.token_seconds = seconds_since(start);
  }

 private:
  bool stopped() {
    report_.stopped = events_.stop_requested && events_.stop_requested();
    return report_.stopped;
  }

  bool read_prompt(int tokens_at_once) {
    const auto prompt = std::span(options_.prompt);
    for (std::size_t first = 0; first < prompt.size();) {
      if (stopped()) return false;
      const auto piece =
          prompt.subspan(first, std::min(prompt.size() - first, static_cast<std::size_t>(tokens_at_once)));
      first += piece.size();
      std::vector<std::int32_t> tokens;
      for (int sequence = 0; sequence < options_.count; ++sequence)
        tokens.insert(tokens.end(), piece.begin(), piece.end());
      append(tokens, first == prompt.size() ? Inference::Logits::last : Inference::Logits::none);
    }
    return true;
  }

  void append(std::span<const std::int32_t> tokens, Inference::Logits which) {
    const int last = inference_.used_positions() + static_cast<int>(tokens.size()) / options_.count - 1;
    inference_.append(tokens, options_.all_logits ? Inference::Logits::all : which,
                      [&](int sequence, int position, std::span<const float> logits) {
                        if (options_.all_logits && events_.logits) events_.logits(position, logits);
                        if (position == last && which == Inference::Logits::last)
                          draw(sequence, position, logits);
                      });
  }

  void draw(int sequence, int position, std::span<const float> logits) {
    if (options_.drawn_ids > 0) logits = logits.first(static_cast<std::size_t>(options_.drawn_ids));
    next_[static_cast<std::size_t>(sequence)] =
        draw_token(logits, options_.sampling, draw_uniform(options_.sampling.seed, sequence, position));
  }

  // What was drawn becomes part of the sequences that go on; whether one does then.
  bool take_tokens() {
    bool one_goes_on = false;
    for (std::size_t s = 0; s < next_.size(); ++s) {
      GeneratedSequence& sequence = report_.sequences[s];
      if (sequence.ended == Ended::stopped) take_token(s, sequence);
      one_goes_on |= sequence.ended == Ended::stopped;
    }
    return one_goes_on;
  }

  void take_token(std::size_t number, GeneratedSequence& sequence) {
    const auto length = static_cast<std::size_t>(options_.max_tokens);
    if (sequence.tokens.size() == length) {
      sequence.ended = Ended::length;
      return;
    }
    const std::int32_t token = next_[number];
    sequence.tokens.push_back(token);
    if (events_.token) events_.token(static_cast<int>(number), token);
    if (options_.stops_at_end && std::ranges::find(config_.end_tokens, token) != config_.end_tokens.end())
      sequence.ended = Ended::end_token;
    else if (sequence.tokens.size() == length)
      sequence.ended = Ended::length;
    else if (inference_.used_positions() == config_.max_positions)
      sequence.ended = Ended::positions;
  }

  const GenerateOptions& options_;
  const GenerateEvents& events_;
  const ModelConfig& config_;
  Inference& inference_;
  GenerateReport& report_;
  std::vector<std::int32_t> next_;  // drawn last, of each sequence
};

}  // namespace

GenerateReport generate(WeightSource& weights, const GenerateOptions& options, const GenerateEvents& events) {
  const auto start = Clock::now();
  const ModelConfig& config = weights.facts().config;
  check(options, config);
  if (options.threads > 0) set_cpu_threads(options.threads);
  const InferenceOptions shape = inference_options(options, weights.facts());
  GenerateReport report = memory_needed(config, shape, options);
  BackendOptions backend{.device = options.device,
                         .device_memory_bytes = report.device_bytes,
                         .threads = options.threads,
                         .launch = launch_info()};
  const auto device = open_device(backend);
  report.device = device->info().name;
  MemoryBudget budget("device", report.device_bytes);
  DeviceMemory memory(device->arena(), budget);
  const auto inference = make_inference(config, shape);
  const auto ops = ops_factory(options.device)(*device, memory);
  LoadedWeights loaded(weights, inference->unit_specs(), shape.dtype, *device, memory,
                       [&] { return !events.stop_requested || !events.stop_requested(); });
  report.stopped = !loaded.whole();
  if (report.stopped) return report;
  Model::Context context{.device = device.get(),
                         .memory = &memory,
                         .hooks = &loaded,
                         .ops = ops.get(),
                         .units = {},
                         .layouts = {}};
  for (const UnitLayout& layout : loaded.layouts()) {
    context.units.push_back(static_cast<UnitId>(context.units.size()));
    context.layouts.push_back(&layout);
  }
  inference->bind(std::move(context));
  report.load_seconds = seconds_since(start);
  if (events.loaded) events.loaded(report);
  Generation(options, events, config, *inference, report).run(shape.tokens_at_once);
  return report;
}

}  // namespace headrace
