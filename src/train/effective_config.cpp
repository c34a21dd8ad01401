// What a run says of its options: the configuration that it runs with, and notes on what changes nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "headrace/kernels.h"
#include "headrace/optimizer_blocks.h"
#include "src/train/resolve_parts.h"

namespace headrace {
namespace {

// Empty where the blocks are as large as was asked for.
std::string block_size_note(const Settings& settings) {
  if (!settings.given.contains("swap_block") || settings.swap_block_numel) return "";
  const Bytes given = settings.swap_block_bytes;
  const StateFormat format = state_format(settings);
  const Bytes used = state_bytes(format, block_numel(given, format));
  if (used == given) return "";
  return fmt::format("{}: blocks hold whole chunks of {} elements, so {} bytes instead of {}.",
                     user_name(settings, "swap_block"), norm_chunk_numel, used, given);
}

// Empty where DeepSpeed would decay the same parameters.
std::string weight_decay_note(const Settings& settings) {
  constexpr std::string_view key = "optimizer.params.weight_decay";
  const auto given = settings.given.find("weight_decay");
  if (given == settings.given.end() || given->second != key || *settings.weight_decay == 0) return "";
  return fmt::format(
      "\"{}\" {:g} is of matrices alone here; DeepSpeed decays norms and biases too, as the last parameter "
      "group {{\"parameters\": [\"*\"], \"weight_decay\": {:g}}} does.",
      key, *settings.weight_decay, *settings.weight_decay);
}

// Empty where the optimizer's rate is the peak, or the same.
std::string unused_rate_note(const Settings& settings, const ScheduleOptions& schedule) {
  const auto rate = settings.given.find("learning_rate");
  if (!schedule.of_deepspeed() || rate == settings.given.end() || is_flag(rate->second) ||
      *settings.learning_rate == schedule.peak)
    return "";
  const bool is_left_out = !settings.scheduler.maximum_rate;
  return fmt::format("\"{}\" {:g} is not used: the peak is the scheduler's own warmup_max_lr, {:g}{}.",
                     rate->second, *settings.learning_rate, schedule.peak,
                     is_left_out ? " where it is left out" : "");
}

}  // namespace

std::string print_config(const Settings& settings) {
  const bool native_schedule = settings.scheduler.type == DeepSpeedScheduler::Type::none;
  Json config = Json::object(), native = Json::object();
  for (const NativeSetting& setting : native_settings()) {
    const std::string& name = setting.info.name;
    if (!native_schedule && (name == "schedule" || name == "warmup_steps" || name == "minimum_rate_ratio"))
      continue;
    if (name == "learning_rate" && settings.scheduler.maximum_rate)
      continue;  // the scheduler's goes before it
    if (!missing_for(settings, name).empty()) continue;
    if (Json value = setting.get(settings); !value.is_null()) native[name] = std::move(value);
  }
  if (!native_schedule) config["scheduler"] = scheduler_section(settings.scheduler);
  config["headrace"] = std::move(native);
  return config.dump(2);
}

std::vector<std::string> notes(const Settings& settings, UnusedKeys unused, const ScheduleOptions& schedule) {
  std::vector<std::string> result;
  for (std::string& group : hints_without_effect(settings)) unused.hints.push_back(std::move(group));
  if (!unused.hints.empty())
    result.push_back(
        fmt::format("performance hints without effect here, not used: {}.", fmt::join(unused.hints, ", ")));
  if (const std::vector<std::string> keys = keys_beside_the_point(settings); !keys.empty())
    result.push_back(fmt::format("not used, as nothing in this run asks for it: {}.", fmt::join(keys, ", ")));
  if (!unused.defaults.empty())
    result.push_back(fmt::format("\"auto\" keeps the default for {}.", fmt::join(unused.defaults, ", ")));
  if (!unused.switched_off.empty())
    result.push_back(fmt::format("not used, as their section is not \"enabled\": {}.",
                                 fmt::join(unused.switched_off, ", ")));
  if (std::string note = block_size_note(settings); !note.empty()) result.push_back(std::move(note));
  if (std::string note = weight_decay_note(settings); !note.empty()) result.push_back(std::move(note));
  if (std::string note = unused_rate_note(settings, schedule); !note.empty())
    result.push_back(std::move(note));
  if (schedule.warmup_steps > settings.steps)
    result.push_back(
        fmt::format("the learning rate never reaches its peak: warm-up takes {} steps, the run {}.",
                    schedule.warmup_steps, settings.steps));
  return result;
}

}  // namespace headrace
