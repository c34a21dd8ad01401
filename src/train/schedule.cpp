#include <algorithm>
#include <cmath>
#include <numbers>

#include "headrace/config.h"

namespace headrace {
namespace {

double between(double from, double to, double part) {
  return from + (to - from) * part;
}

// How much of a cosine's decay is left, from 1 to 0.
double cosine(double progress) {
  return (1 + std::cos(std::numbers::pi * progress)) / 2;
}

double headrace_rate(const ScheduleOptions& schedule, std::uint64_t iteration) {
  const std::uint64_t warmup = schedule.warmup_steps, total = schedule.total_steps;
  if (iteration < warmup)
    return between(schedule.start, schedule.peak,
                   static_cast<double>(iteration + 1) / static_cast<double>(warmup));
  if (schedule.decay == ScheduleOptions::Decay::constant) return schedule.peak;
  if (total <= warmup || iteration >= total) return schedule.floor;
  const double progress = static_cast<double>(iteration + 1 - warmup) / static_cast<double>(total - warmup);
  return between(schedule.floor, schedule.peak,
                 schedule.decay == ScheduleOptions::Decay::linear ? 1 - progress : cosine(progress));
}

// DeepSpeed's schedulers, of the step that is counted from 0 once a first update was applied.
double deepspeed_rate(const ScheduleOptions& schedule, std::uint64_t step) {
  const auto s = static_cast<double>(step);
  const auto warmup = static_cast<double>(std::max<std::uint64_t>(schedule.warmup_steps, 2));
  if (s < warmup)
    return between(schedule.start, schedule.peak,
                   schedule.warmup == ScheduleOptions::Warmup::deepspeed_log
                       ? std::log(s + 1) / std::log(warmup)
                       : s / warmup);
  if (schedule.decay == ScheduleOptions::Decay::constant) return schedule.peak;
  const auto total = static_cast<double>(schedule.total_steps);
  const double steps = std::max(total - warmup, 1.0);
  // The linear decay begins with the peak, the cosine one step behind it.
  return between(schedule.floor, schedule.peak,
                 schedule.decay == ScheduleOptions::Decay::linear
                     ? std::max((total - s) / steps, 0.0)
                     : cosine(std::min((s - warmup + 1) / steps, 1.0)));
}

// A scheduler that has not been moved on yet gives its smallest rate; WarmupCosineLR gives none.
double deepspeed_first_rate(const ScheduleOptions& schedule) {
  return schedule.decay == ScheduleOptions::Decay::cosine ? 0 : schedule.start;
}

}  // namespace

double learning_rate(const ScheduleOptions& schedule, std::uint64_t counted) {
  if (!schedule.of_deepspeed()) return headrace_rate(schedule, counted);
  return counted == 0 ? deepspeed_first_rate(schedule) : deepspeed_rate(schedule, counted - 1);
}

}  // namespace headrace
