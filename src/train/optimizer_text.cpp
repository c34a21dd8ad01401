// How a run says which optimizer it has.
#include <fmt/format.h>

#include "headrace/config.h"
#include "src/train/optimizer_name.h"

namespace headrace {
namespace {

std::string hyper_parameters(const OptimizerArguments& a) {
  const bool is_adam = a.kind == OptimizerKind::adam, is_sgd = a.kind == OptimizerKind::sgd;
  std::string text;
  if (is_adam || a.kind == OptimizerKind::lion) text += fmt::format(", betas {:g} {:g}", a.beta1, a.beta2);
  if (is_adam || a.kind == OptimizerKind::adagrad) text += fmt::format(", epsilon {:g}", a.epsilon);
  if (is_sgd) text += fmt::format(", momentum {:g}", a.momentum);
  if (is_sgd && a.dampening != 0) text += fmt::format(", dampening {:g}", a.dampening);
  if (is_sgd && a.nesterov) text += ", nesterov";
  text += fmt::format(", weight decay {:g}", a.weight_decay);
  if (a.kind == OptimizerKind::adagrad && a.rate_decay != 0)
    text += fmt::format(", decay of the rate {:g}", a.rate_decay);
  if (a.maximize) text += ", up the gradient";
  return text;
}

}  // namespace

std::string_view optimizer_name(const OptimizerArguments& optimizer) {
  return optimizer.kind == OptimizerKind::adam && optimizer.decoupled ? "adamw" : name_of(optimizer.kind);
}

std::string optimizer_line(const EngineOptions& engine) {
  const StateFormat states = engine.state_format();
  // What behind the optimizer's name is said of the states.
  const std::string types = text_of(states).substr(optimizer_text(states).size() + 2);
  return fmt::format("{}{}{}; {}", optimizer_name(engine.optimizer), states.amsgrad ? " with amsgrad" : "",
                     hyper_parameters(engine.optimizer), types);
}

}  // namespace headrace
