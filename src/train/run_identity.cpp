#include "src/train/run_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "headrace/errors.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

std::string schedule(const ScheduleOptions& options) {
  constexpr const char* decays[] = {"constant", "linear", "cosine"};
  constexpr const char* warmups[] = {"linear", "deepspeed_linear", "deepspeed_log"};
  std::string text = fmt::format("{} {:.6g}", decays[static_cast<std::size_t>(options.decay)], options.peak);
  if (options.decay != ScheduleOptions::Decay::constant)
    text += fmt::format(" to {:.6g} in {} steps", options.floor, options.total_steps);
  if (options.warmup_steps > 0)
    text +=
        fmt::format(", {} warm-up of {} steps from {:.6g}", warmups[static_cast<std::size_t>(options.warmup)],
                    options.warmup_steps, options.start);
  return text;
}

std::string loss_scale(const LossScaleOptions& options) {
  if (options.fixed != 0) return fmt::format("{:.6g}", options.fixed);
  return fmt::format("dynamic from 2^{} down to {:.6g}, window {}, hysteresis {}{}", options.initial_power,
                     options.minimum, options.window, options.hysteresis,
                     options.consecutive_hysteresis ? " consecutive" : "");
}

// The names are what a user would have to write to make the two equal.
std::vector<std::string> differences(const Json& stored, const Json& current) {
  std::vector<std::string> result;
  for (const auto& [name, value] : current.items()) {
    const Json before = stored.value(name, Json());
    if (before != value) result.push_back(fmt::format("{} {} (was {})", name, value.dump(), before.dump()));
  }
  return result;
}

// " in 300 steps" of a schedule's text; empty where it has no end.
std::string length_of(const std::string& schedule) {
  const std::size_t first = schedule.find(" in "), last = schedule.find(" steps", first);
  return last == std::string::npos ? "" : schedule.substr(first, last + 6 - first);
}

std::string without(std::string text, const std::string& part) {
  return part.empty() ? text : text.erase(text.find(part), part.size());
}

// The sentence for a run whose number of steps alone was changed; empty for any other difference.
std::string other_length(Json before, Json now) {
  const auto schedule = now.at("learning rate").get<std::string>(),
             old_schedule = before.at("learning rate").get<std::string>();
  const std::string length = length_of(schedule), old_length = length_of(old_schedule);
  if (length.empty() || old_length.empty() || without(schedule, length) != without(old_schedule, old_length))
    return "";
  before.erase("learning rate"), now.erase("learning rate");
  if (!differences(before, now).empty()) return "";
  return fmt::format("the learning rate now falls{}, as --steps says (before:{}).", length, old_length);
}

}  // namespace

std::string run_identity(const ResolvedOptions& options, const ByteCorpus& data) {
  const OptimizerArguments& adam = options.engine.optimizer;
  Json identity{{"samples",
                 {{"--seed", options.seed},
                  {"--sequence-length", options.model_options.sequence},
                  {"data", data.fingerprint()}}},
                {"result",
                 {{"--batch-size", options.batch.micro},
                  {"--accumulation", options.batch.accumulation},
                  {"learning rate", schedule(options.schedule)},
                  {"--clip", options.engine.clip},
                  {"--weight-decay", adam.weight_decay},
                  {"--beta1", adam.beta1},
                  {"--beta2", adam.beta2},
                  {"--epsilon", adam.epsilon},
                  {"AdamW", adam.decoupled}}}};
  if (options.engine.dtype == DType::f16)
    identity["result"]["loss scale"] = loss_scale(options.engine.loss_scale);
  return identity.dump();
}

RunDifference compare_runs(const std::string& stored, const std::string& current,
                           const std::string& swap_paths) {
  try {
    const Json before = Json::parse(stored), now = Json::parse(current);
    if (const auto samples = differences(before.at("samples"), now.at("samples")); !samples.empty())
      throw UsageError(fmt::format(
          "--resume swap: the run in {} reads other samples than this one: {}. Continue it with the "
          "same seed, sequence length and data, or start a new run on another --swap-path.",
          swap_paths, fmt::join(samples, ", ")));
    const auto result = differences(before.at("result"), now.at("result"));
    if (result.empty()) return {};
    if (std::string text = other_length(before.at("result"), now.at("result")); !text.empty())
      return {std::move(text), true};
    return {fmt::format("the run continues with other settings than before: {}.", fmt::join(result, ", "))};
  } catch (const Json::exception&) {
    throw CorruptData(fmt::format(
        "the commit in {} does not say which run it belongs to. It was written by another program "
        "or is damaged; `headrace inspect --verify` with its swap paths tells.",
        swap_paths));
  }
}

}  // namespace headrace
