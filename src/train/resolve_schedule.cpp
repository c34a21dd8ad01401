// The learning rate's schedule, from DeepSpeed's section or from Headrace's own settings.
#include "headrace/errors.h"
#include "src/train/resolve_parts.h"

namespace headrace {
namespace {

double given_or(const std::optional<double>& value, double otherwise) {
  return value ? *value : otherwise;
}

void refuse_parameter(bool given, std::string_view name, std::string_view type, std::string_view instead) {
  if (given)
    throw UsageError(
        fmt::format("\"scheduler.params.{}\" has no meaning for the scheduler {}.{}", name, type, instead));
}

// DeepSpeed's schedulers, with its defaults.
ScheduleOptions deepspeed_schedule(const Settings& settings) {
  using Type = DeepSpeedScheduler::Type;
  const DeepSpeedScheduler& given = settings.scheduler;
  ScheduleOptions schedule;
  schedule.warmup =
      given.logarithmic ? ScheduleOptions::Warmup::deepspeed_log : ScheduleOptions::Warmup::deepspeed_linear;
  schedule.warmup_steps = given.warmup_steps.value_or(1000);
  if (schedule.warmup_steps == 0)
    throw UsageError(fmt::format("{} is 0, and DeepSpeed's schedulers have a warm-up. Give at least 1.",
                                 user_name(settings, "warmup_steps")));
  schedule.total_steps = given.total_steps.value_or(settings.steps);
  schedule.peak = given_or(given.maximum_rate, *settings.learning_rate);
  if (given.type == Type::warmup_cosine) {
    refuse_parameter(given.minimum_rate.has_value(), "warmup_min_lr", "WarmupCosineLR",
                     " Use warmup_min_ratio.");
    refuse_parameter(given.maximum_rate.has_value(), "warmup_max_lr", "WarmupCosineLR",
                     " Its peak is optimizer.params.lr.");
    schedule.decay = ScheduleOptions::Decay::cosine;
    schedule.start = schedule.peak * given_or(given.minimum_ratio, 0);
    schedule.floor = schedule.peak * given_or(given.cosine_minimum_ratio, 1e-4);
    return schedule;
  }
  const std::string_view type = given.type == Type::warmup ? "WarmupLR" : "WarmupDecayLR";
  refuse_parameter(given.minimum_ratio.has_value(), "warmup_min_ratio", type, " Use warmup_min_lr.");
  refuse_parameter(given.cosine_minimum_ratio.has_value(), "cos_min_ratio", type,
                   " Use the scheduler WarmupCosineLR.");
  if (given.type == Type::warmup)
    refuse_parameter(given.total_steps.has_value(), "total_num_steps", type,
                     " Use the scheduler WarmupDecayLR.");
  schedule.decay =
      given.type == Type::warmup ? ScheduleOptions::Decay::constant : ScheduleOptions::Decay::linear;
  if (given.maximum_rate && user_name(settings, "learning_rate").find("headrace.") != std::string::npos)
    throw UsageError(
        fmt::format("\"scheduler.params.warmup_max_lr\" and {} both give the peak. Leave one out.",
                    user_name(settings, "learning_rate")));
  schedule.start = given_or(given.minimum_rate, 0);
  schedule.floor = schedule.start;
  return schedule;
}

}  // namespace

void resolve_scheduler_peak(Settings& settings) {
  // The optimizer's rate is the peak of the other schedulers alone.
  constexpr double warmup_decay_peak = 1e-3;
  DeepSpeedScheduler& scheduler = settings.scheduler;
  const auto rate = settings.given.find("learning_rate");
  const bool is_headraces = rate != settings.given.end() && !rate->second.starts_with("optimizer.");
  if (scheduler.type == DeepSpeedScheduler::Type::warmup_decay && !is_headraces && !scheduler.maximum_rate)
    scheduler.maximum_rate = warmup_decay_peak;
}

ScheduleOptions resolve_schedule(const Settings& settings) {
  if (settings.scheduler.type != DeepSpeedScheduler::Type::none) return deepspeed_schedule(settings);
  return {.decay = settings.decay,
          .warmup = ScheduleOptions::Warmup::linear,
          .peak = *settings.learning_rate,
          .start = 0.0,
          .floor = *settings.learning_rate * settings.minimum_rate_ratio,
          .warmup_steps = settings.warmup_steps.value_or(0),
          .total_steps = settings.steps};
}

// A DeepSpeed scheduler as its section again: the native keys cannot say all of it.
Json scheduler_section(const DeepSpeedScheduler& scheduler) {
  constexpr const char* types[] = {"", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  Json params = {{"warmup_type", scheduler.logarithmic ? "log" : "linear"}};
  const auto add = [&](const char* name, const auto& value) {
    if (value) params[name] = *value;
  };
  add("warmup_min_lr", scheduler.minimum_rate);
  add("warmup_max_lr", scheduler.maximum_rate);
  add("warmup_num_steps", scheduler.warmup_steps);
  add("total_num_steps", scheduler.total_steps);
  add("warmup_min_ratio", scheduler.minimum_ratio);
  add("cos_min_ratio", scheduler.cosine_minimum_ratio);
  return {{"type", types[static_cast<std::size_t>(scheduler.type)]}, {"params", std::move(params)}};
}

}  // namespace headrace
