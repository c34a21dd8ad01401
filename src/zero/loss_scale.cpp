#include "headrace/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr double factor = 2.0;
constexpr double largest_scale = LossScaler::largest_scale;

// As fp32 holds it: the loss is multiplied in fp32, so the gradient must be divided by that.
double checked_scale(double scale, const char* what) {
  const double held = std::abs(scale) <= largest_scale ? static_cast<float>(scale) : scale;
  if (held > 0 && held <= largest_scale) return held;
  throw UsageError(fmt::format("{} of {} is not allowed: it must be a number above 0, at most 2^{}.", what,
                               scale, LossScaler::largest_power));
}

double first_scale(const LossScaleOptions& options) {
  return options.fixed != 0 ? options.fixed : std::ldexp(1.0, options.initial_power);
}

}  // namespace

LossScaler::LossScaler(const LossScaleOptions& options) : options_(options) {
  if (options.fixed != 0) {
    options_.fixed = checked_scale(options.fixed, "a loss scale");
    return;
  }
  (void)checked_scale(first_scale(options), "a first loss scale");
  options_.minimum = checked_scale(options.minimum, "a smallest loss scale");
  if (options.minimum > first_scale(options))
    throw UsageError(fmt::format("the smallest loss scale, {}, is above the first, 2^{} = {}.",
                                 options.minimum, options.initial_power, first_scale(options)));
  if (options.window == 0)
    throw UsageError("a loss scale window of 0 steps is not allowed: it must be at least 1.");
  if (options.hysteresis < 1)
    throw UsageError(fmt::format("a loss scale hysteresis of {} is not allowed: it must be at least 1.",
                                 options.hysteresis));
}

LossScale LossScaler::start() const {
  if (options_.fixed != 0) return {.scale = options_.fixed};
  return {.scale = first_scale(options_),
          .good_steps = 0,
          .hysteresis_left = static_cast<std::uint32_t>(options_.hysteresis)};
}

LossScale LossScaler::resumed(const LossScale& stored) const {
  if (options_.fixed != 0) return start();
  if (stored.hysteresis_left == 0) {  // of a fixed scale: the search begins at it
    LossScale fresh = start();
    fresh.scale = std::clamp(stored.scale, options_.minimum, largest_scale);
    return fresh;
  }
  return {.scale = std::clamp(stored.scale, options_.minimum, largest_scale),
          .good_steps = stored.good_steps,
          .hysteresis_left = std::clamp(stored.hysteresis_left, 1u, start().hysteresis_left)};
}

bool LossScaler::at_floor(const LossScale& now) const {
  return options_.fixed == 0 && now.scale <= options_.minimum && now.hysteresis_left <= 1;
}

LossScale LossScaler::next(const LossScale& now, bool overflow) const {
  if (options_.fixed != 0) return now;
  LossScale after = now;
  if (overflow) {
    // Once used up, the hysteresis stays so until it is given back: overflows in a row halve each time.
    if (now.hysteresis_left > 1)
      --after.hysteresis_left;
    else
      after.scale = std::max(now.scale / factor, options_.minimum);
    after.good_steps = 0;
    return after;
  }
  // The first step after an overflow counts as the 0th of the window.
  const bool grow = now.good_steps > 0 && now.good_steps % options_.window == 0;
  if (grow) after.scale = std::min(now.scale * factor, largest_scale);
  if (grow || options_.consecutive_hysteresis) after.hysteresis_left = start().hysteresis_left;
  ++after.good_steps;
  return after;
}

}  // namespace headrace
