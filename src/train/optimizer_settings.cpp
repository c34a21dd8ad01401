// Settings of the optimizer and the learning rate's schedule.
#include "src/train/parameter_groups.h"
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"

namespace headrace::settings {
namespace {

constexpr const char* group = "Optimizer";

void set_learning_rate(Settings& settings, const ConfigValue& value) {
  settings.learning_rate = fp32_number(value);
  if (is_flag(value.key())) settings.scheduler.maximum_rate.reset();  // a flag goes before the file
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

void set_optimizer(Settings& settings, const ConfigValue& value) {
  settings.optimizer =
      static_cast<OptimizerChoice>(value.choice({"adamw", "adam", "adagrad", "lion", "sgd"}));
  settings.optimizer_defaults = DefaultsOf::headrace;
}
Json get_optimizer(const Settings& settings) {
  constexpr const char* names[] = {"adamw", "adam", "adagrad", "lion", "sgd", "adam"};
  return names[static_cast<std::size_t>(settings.optimizer)];
}
void set_master(Settings& settings, const ConfigValue& value) {
  settings.master_dtype = static_cast<MasterDType>(value.choice({"fp32", "bf16", "none"}));
}
Json get_master(const Settings& settings) {
  return name_of(settings.master_dtype);
}
void set_moments(Settings& settings, const ConfigValue& value) {
  settings.moment_dtype = static_cast<MomentDType>(value.choice({"fp32", "bf16", "int8"}));
}
Json get_moments(const Settings& settings) {
  return name_of(settings.moment_dtype);
}
void set_dampening(Settings& settings, const ConfigValue& value) {
  settings.dampening = value.number(0, 1);
}

void set_parameter_groups(Settings& settings, const ConfigValue& value) {
  settings.parameter_groups = parameter_groups_of(value);
}
Json get_parameter_groups(const Settings& settings) {
  return parameter_groups_json(settings.parameter_groups);
}

std::vector<NativeSetting> state_settings() {
  return {
      {{"optimizer", group, "NAME", "adamw, adam, adagrad, lion or sgd (default adamw)"},
       set_optimizer,
       get_optimizer},
      {{"master_dtype", group, "TYPE",
        "fp32, bf16 (rounded stochastically) or none: the parameters themselves (default fp32)"},
       set_master,
       get_master},
      {{"moments", group, "TYPE",
        "fp32, or bf16 or int8 (by blocks of 64), both rounded stochastically (default fp32)"},
       set_moments,
       get_moments},
  };
}

std::vector<NativeSetting> rate_settings() {
  return {
      {{"learning_rate", group, "X",
        "peak of the schedule (default 3e-4; adam, sgd 1e-3, adagrad 1e-2, lion 1e-4)", true},
       set_learning_rate,
       get_optional<&S::learning_rate>},
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
  };
}

std::vector<NativeSetting> hyper_parameters() {
  return {
      {{"beta1", group, "X", "decay of the first moment (default 0.9)", true},
       set_probability<&S::beta1, 1>,
       get_optional<&S::beta1>},
      {{"beta2", group, "X", "decay of the second moment (default 0.95; adam 0.999, lion 0.99)", true},
       set_probability<&S::beta2, 1>,
       get_optional<&S::beta2>},
      {{"epsilon", group, "X", "added to the root of the second moment (default 1e-8; adagrad 1e-10)", true},
       set_fp32_number<&S::epsilon>,
       get_optional<&S::epsilon>},
      {{"weight_decay", group, "X",
        "of matrices; norms and biases have none (default 0.1; other than adamw 0)", true},
       set_fp32_number<&S::weight_decay>,
       get_optional<&S::weight_decay>},
      {{"amsgrad", group, "", "adam, adamw: divide by the largest second moment so far, a third one"},
       set_boolean<&S::amsgrad>,
       get<&S::amsgrad>},
      {{"momentum", group, "X", "sgd: decay of its moment; 0 keeps none (default 0)"},
       set_fp32_number<&S::momentum>,
       get<&S::momentum>},
      {{"dampening", group, "X", "sgd: part of the gradient that the moment leaves out (default 0)", true},
       set_dampening,
       get<&S::dampening>},
      {{"nesterov", group, "", "sgd: look ahead by the momentum", true},
       set_boolean<&S::nesterov>,
       get<&S::nesterov>},
      {{"lr_decay", group, "X", "adagrad: the rate falls as 1 / (1 + steps * X) (default 0)", true},
       set_number<&S::rate_decay>,
       get<&S::rate_decay>},
      {{"maximize", group, "", "go up the gradient instead of down", true},
       set_boolean<&S::maximize>,
       get<&S::maximize>},
      {{"parameter_groups", group, "JSON",
        "list of {\"parameters\": [patterns], \"weight_decay\": X, ...}, from group 1: see README"},
       set_parameter_groups,
       get_parameter_groups},
  };
}

}  // namespace

std::vector<NativeSetting> optimizer_group() {
  std::vector<NativeSetting> all = state_settings();
  for (const auto& part : {rate_settings, hyper_parameters})
    for (NativeSetting& setting : part()) all.push_back(std::move(setting));
  return all;
}

}  // namespace headrace::settings
