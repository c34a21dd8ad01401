// Settings of the loss scale of fp16 models.
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"

namespace headrace::settings {
namespace {

constexpr const char* group = "Loss scale of fp16 models";
constexpr double largest_scale = LossScaler::largest_scale;

// Above 0, what it is in fp32, by which the loss is multiplied.
double scale_of(const ConfigValue& value) {
  const double scale = value.number(0, largest_scale);
  if (scale > 0 && static_cast<float>(scale) == 0) value.refuse("a number above 0 in fp32");
  return scale;
}

void set_fixed(Settings& settings, const ConfigValue& value) {
  settings.loss_scale.fixed = scale_of(value);
}
Json get_fixed(const Settings& settings) {
  return settings.loss_scale.fixed;
}
void set_power(Settings& settings, const ConfigValue& value) {
  settings.loss_scale.initial_power = static_cast<int>(value.count(0, LossScaler::largest_power));
}
Json get_power(const Settings& settings) {
  return settings.loss_scale.initial_power;
}
void set_window(Settings& settings, const ConfigValue& value) {
  settings.loss_scale.window = value.count(1, largest_count);
}
Json get_window(const Settings& settings) {
  return settings.loss_scale.window;
}
void set_hysteresis(Settings& settings, const ConfigValue& value) {
  settings.loss_scale.hysteresis = static_cast<int>(value.count(1, int_max));
}
Json get_hysteresis(const Settings& settings) {
  return settings.loss_scale.hysteresis;
}
void set_consecutive(Settings& settings, const ConfigValue& value) {
  settings.loss_scale.consecutive_hysteresis = value.boolean();
}
Json get_consecutive(const Settings& settings) {
  return settings.loss_scale.consecutive_hysteresis;
}
void set_minimum(Settings& settings, const ConfigValue& value) {
  settings.loss_scale.minimum = scale_of(value);
  if (settings.loss_scale.minimum == 0) value.refuse("a number above 0");
}
Json get_minimum(const Settings& settings) {
  return settings.loss_scale.minimum;
}

}  // namespace

std::vector<NativeSetting> loss_scale_group() {
  return {
      {{"loss_scale", group, "X", "fixed scale; 0: found while training, by what follows (default 0)", true},
       set_fixed,
       get_fixed},
      {{"initial_scale_power", group, "N", "the first scale is 2 to it (default 16)", true},
       set_power,
       get_power},
      {{"loss_scale_window", group, "N", "steps without overflow between two doublings (default 1000)", true},
       set_window,
       get_window},
      {{"loss_scale_hysteresis", group, "N", "overflows until the scale is halved (default 2)", true},
       set_hysteresis,
       get_hysteresis},
      {{"consecutive_hysteresis", group, "",
        "a step without overflow gives the hysteresis back, not only a doubling", true},
       set_consecutive,
       get_consecutive},
      {{"min_loss_scale", group, "X", "smallest scale; an overflow there ends the run (default 1)", true},
       set_minimum,
       get_minimum},
  };
}

}  // namespace headrace::settings
