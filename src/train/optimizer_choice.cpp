// From the settings of the optimizer to its arguments.
#include "headrace/errors.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

struct Defaults {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
};

// Headrace's: AdamW's are those that language models are mostly trained with, the others PyTorch's; Lion's
// are of its paper.
constexpr Defaults defaults_of(OptimizerChoice choice) {
  switch (choice) {
    case OptimizerChoice::adam:
      return {1e-3, 0.9, 0.999, 1e-8, 0};
    case OptimizerChoice::adagrad:
      return {1e-2, 0, 0, 1e-10, 0};
    case OptimizerChoice::lion:
      return {1e-4, 0.9, 0.99, 0, 0};
    case OptimizerChoice::sgd:
      return {1e-3, 0, 0, 0, 0};
    case OptimizerChoice::adamw:
    case OptimizerChoice::deepspeed_adam:
      break;
  }
  return {3e-4, 0.9, 0.95, 1e-8, 0.1};
}

OptimizerKind kind_of(OptimizerChoice choice) {
  switch (choice) {
    case OptimizerChoice::adagrad:
      return OptimizerKind::adagrad;
    case OptimizerChoice::lion:
      return OptimizerKind::lion;
    case OptimizerChoice::sgd:
      return OptimizerKind::sgd;
    case OptimizerChoice::adamw:
    case OptimizerChoice::adam:
    case OptimizerChoice::deepspeed_adam:
      break;
  }
  return OptimizerKind::adam;
}

// Those of deepspeed/ops/{adam,lion,adagrad} (their CPU and fused classes agree) and of torch.optim.SGD.
constexpr Defaults deepspeed_defaults_of(OptimizerChoice choice, bool torch_adam) {
  switch (choice) {
    case OptimizerChoice::adamw:
    case OptimizerChoice::deepspeed_adam:
      return {1e-3, 0.9, 0.999, 1e-8, torch_adam ? 0.01 : 0};
    case OptimizerChoice::lion:
      return {1e-3, 0.9, 0.999, 0, 0};
    case OptimizerChoice::adam:
    case OptimizerChoice::adagrad:
    case OptimizerChoice::sgd:
      break;
  }
  return defaults_of(choice);
}

void fill(std::optional<double>& value, double otherwise) {
  if (!value) value = otherwise;
}

OptimizerChoice chosen(const Settings& settings) {
  using enum OptimizerChoice;
  const OptimizerChoice optimizer = settings.optimizer;
  if (settings.torch_adam && kind_of(optimizer) != OptimizerKind::adam &&
      !replaces_optimizer_of_file(settings))
    throw UsageError("\"optimizer.params.torch_adam\" has a meaning for Adam and AdamW alone. Leave it out.");
  // A flag goes before the file, adam_w_mode with it.
  if (!settings.adam_w_mode || replaces_optimizer_of_file(settings))
    return optimizer == deepspeed_adam ? adamw : optimizer;
  const std::string mode = user_name(settings, "adam_w_mode");
  if (kind_of(optimizer) != OptimizerKind::adam)
    throw UsageError(fmt::format("{} has a meaning for Adam and AdamW alone. Leave it out.", mode));
  const OptimizerChoice by_mode = *settings.adam_w_mode ? adamw : adam;
  const bool open = optimizer == deepspeed_adam || !settings.given.contains("optimizer");
  if (!open && by_mode != optimizer)
    throw UsageError(fmt::format("{} {} contradicts {} {}. Give the type {}, or leave {} out.", mode,
                                 *settings.adam_w_mode, user_name(settings, "optimizer"),
                                 optimizer == adamw ? "AdamW" : "Adam", by_mode == adamw ? "AdamW" : "Adam",
                                 mode));
  return by_mode;
}

}  // namespace

void resolve_optimizer(Settings& settings) {
  settings.optimizer = chosen(settings);
  settings.adam_w_mode.reset();
  drop_replaced_parameters(settings);
  const bool as_deepspeed = settings.optimizer_defaults == DefaultsOf::deepspeed;
  const Defaults defaults = as_deepspeed ? deepspeed_defaults_of(settings.optimizer, settings.torch_adam)
                                         : defaults_of(settings.optimizer);
  if (as_deepspeed && !settings.given.contains("schedule"))  // its rate changes by a scheduler alone
    settings.decay = ScheduleOptions::Decay::constant;
  fill(settings.learning_rate, defaults.learning_rate);
  fill(settings.beta1, defaults.beta1);
  fill(settings.beta2, defaults.beta2);
  fill(settings.epsilon, defaults.epsilon);
  fill(settings.weight_decay, defaults.weight_decay);
}

OptimizerArguments optimizer_arguments(const Settings& settings) {
  OptimizerArguments arguments;
  arguments.kind = kind_of(settings.optimizer);
  arguments.decoupled = settings.optimizer != OptimizerChoice::adam;
  arguments.beta1 = settings.beta1.value_or(arguments.beta1);
  arguments.beta2 = settings.beta2.value_or(arguments.beta2);
  arguments.epsilon = settings.epsilon.value_or(arguments.epsilon);
  arguments.weight_decay = settings.weight_decay.value_or(arguments.weight_decay);
  arguments.amsgrad = settings.amsgrad;
  arguments.rate_decay = settings.rate_decay;
  arguments.momentum = settings.momentum;
  arguments.dampening = settings.dampening;
  arguments.nesterov = settings.nesterov;
  arguments.maximize = settings.maximize;
  return arguments;
}

StateFormat state_format(const Settings& settings) {
  return format_of(optimizer_arguments(settings), settings.master_dtype, settings.moment_dtype);
}

}  // namespace headrace
