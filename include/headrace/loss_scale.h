// The scale that a loss is multiplied by before backward, so that gradients are not lost below the smallest
// fp16: fixed, or found by DeepSpeed's rule with DeepSpeed's defaults. Pure arithmetic; what it has found so
// far is a value that its owner keeps, commits with every step and gives back.
#pragma once

#include <cstdint>

namespace headrace {

struct LossScaleOptions {
  double fixed = 0;                     // 0: dynamic, by what follows
  int initial_power = 16;               // the first scale is 2 to it
  std::uint64_t window = 1000;          // steps without overflow between two doublings
  int hysteresis = 2;                   // overflows until the scale is halved, from each of which on
  bool consecutive_hysteresis = false;  // a step without overflow gives the hysteresis back; else a doubling
  double minimum = 1;
};

// What must continue with the parameters.
struct LossScale {
  double scale = 1.0;                 // of the next step's gradients
  std::uint64_t good_steps = 0;       // since the last overflow, or since the start
  std::uint32_t hysteresis_left = 0;  // 0: the scale was not searched for
  bool operator==(const LossScale&) const = default;
};

class LossScaler {
 public:
  // Beyond it the scale does not grow: its inverse would leave fp32's normal numbers.
  static constexpr int largest_power = 100;
  static constexpr double largest_scale = 0x1p100;  // 2 to it

  // Throws UsageError on values without meaning: a window or hysteresis of 0, a minimum that is not above 0
  // or is above the first scale, a scale that is not a finite number above 0, or beyond the largest power.
  explicit LossScaler(const LossScaleOptions& options);

  LossScale start() const;
  // From a commit that may have been made with other options.
  LossScale resumed(const LossScale& stored) const;
  // After a step with `now`. Not to be asked after an overflow at the floor.
  LossScale next(const LossScale& now, bool overflow) const;
  // Whether one more overflow would have to lower the scale below its minimum.
  bool at_floor(const LossScale& now) const;

 private:
  LossScaleOptions options_;
};

}  // namespace headrace
