// Settings of the optimizer and the learning rate's schedule.
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"

namespace headrace::settings {
namespace {

constexpr const char* group = "Optimizer";

void set_learning_rate(Settings& settings, const ConfigValue& value) {
  settings.learning_rate = learning_rate_value(value);
  settings.scheduler.maximum_rate.reset();  // which would go before it
}
void set_decay(Settings& settings, const ConfigValue& value) {
  settings.decay = static_cast<ScheduleOptions::Decay>(value.choice({"constant", "linear", "cosine"}));
  settings.scheduler = {};
}
Json get_decay(const Settings& settings) {
  constexpr const char* names[] = {"constant", "linear", "cosine"};
  return names[static_cast<std::size_t>(settings.decay)];
}
void set_warmup(Settings& settings, const ConfigValue& value) {
  settings.warmup_steps = value.count(0, largest_count);
  if (settings.scheduler.type != DeepSpeedScheduler::Type::none)
    settings.scheduler.warmup_steps = settings.warmup_steps;
}

}  // namespace

std::vector<NativeSetting> optimizer_group() {
  return {
      {{"learning_rate", group, "X", "peak of the schedule (default 3e-4)", true},
       set_learning_rate,
       get<&S::learning_rate>},
      {{"warmup_steps", group, "N", "steps of linear warm-up (default 0)", true},
       set_warmup,
       get_optional<&S::warmup_steps>},
      {{"schedule", group, "NAME", "after warm-up: cosine, linear or constant (default cosine)", true},
       set_decay,
       get_decay},
      {{"minimum_rate_ratio", group, "X", "last learning rate as a part of the peak (default 0.1)", true},
       set_probability<&S::minimum_rate_ratio, 1>,
       get<&S::minimum_rate_ratio>},
      {{"clip", group, "X", "largest global gradient norm; 0: no clipping (default 1)", true},
       set_number<&S::clip>,
       get<&S::clip>},
      {{"beta1", group, "X", "decay of the first moment (default 0.9)", true},
       set_probability<&S::beta1, 1>,
       get<&S::beta1>},
      {{"beta2", group, "X", "decay of the second moment (default 0.95)", true},
       set_probability<&S::beta2, 1>,
       get<&S::beta2>},
      {{"epsilon", group, "X", "added to the root of the second moment (default 1e-8)", true},
       set_number<&S::epsilon>,
       get<&S::epsilon>},
      {{"weight_decay", group, "X", "of matrices; norms and biases have none (default 0.1)", true},
       set_number<&S::weight_decay>,
       get<&S::weight_decay>},
      {{"decoupled", group, "BOOL", "true: AdamW, false: Adam (default true)", true},
       set_boolean<&S::decoupled>,
       get<&S::decoupled>},
  };
}

}  // namespace headrace::settings
