#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "headrace/config.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

// How far the warm-up is at `iteration` < warmup_steps, from 0 to 1.
double warmup_fraction(const ScheduleOptions& schedule, std::uint64_t iteration) {
  const auto i = static_cast<double>(iteration);
  const auto steps = static_cast<double>(schedule.warmup_steps);
  switch (schedule.warmup) {
    case ScheduleOptions::Warmup::linear:
      return (i + 1) / steps;
    case ScheduleOptions::Warmup::deepspeed_linear:
      return i / std::max(steps, 2.0);
    case ScheduleOptions::Warmup::deepspeed_log:
      return std::log(i + 1) / std::log(std::max(steps, 2.0));
  }
  return 1;
}

}  // namespace

double learning_rate(const ScheduleOptions& schedule, std::uint64_t iteration) {
  if (iteration < schedule.warmup_steps)
    return schedule.start + (schedule.peak - schedule.start) * warmup_fraction(schedule, iteration);
  if (schedule.decay == ScheduleOptions::Decay::constant) return schedule.peak;
  if (schedule.total_steps <= schedule.warmup_steps || iteration >= schedule.total_steps)
    return schedule.floor;
  const double progress = static_cast<double>(iteration + 1 - schedule.warmup_steps) /
                          static_cast<double>(schedule.total_steps - schedule.warmup_steps);
  const double remaining = schedule.decay == ScheduleOptions::Decay::linear
                               ? 1 - progress
                               : (1 + std::cos(std::numbers::pi * progress)) / 2;
  return schedule.floor + (schedule.peak - schedule.floor) * remaining;
}

double learning_rate_value(const ConfigValue& value) {
  const double rate = value.number(0, std::numeric_limits<double>::infinity());
  if (rate > std::numeric_limits<float>::max())
    value.refuse("a number that fits fp32, in which weights are updated");
  return rate;
}

}  // namespace headrace
