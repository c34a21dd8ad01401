#include <cmath>

#include "headrace/errors.h"
#include "headrace/optimizer.h"
#include "headrace/state_codes.h"

namespace headrace {
namespace {

// Written so that NaN fails.
void require(bool holds, const char* name, double value, const char* range) {
  if (!holds) throw UsageError(fmt::format("optimizer: {} is {}; it must be {}", name, value, range));
}

void require_meaning(const OptimizerArguments& a) {
  require(a.learning_rate >= 0.0, "learning rate", a.learning_rate, "at least 0");
  require(a.beta1 >= 0.0 && a.beta1 < 1.0, "beta1", a.beta1, "in [0, 1)");
  require(a.beta2 >= 0.0 && a.beta2 < 1.0, "beta2", a.beta2, "in [0, 1)");
  require(a.epsilon >= 0.0, "epsilon", a.epsilon, "at least 0");
  require(a.weight_decay >= 0.0, "weight decay", a.weight_decay, "at least 0");
  require(a.rate_decay >= 0.0, "decay of the learning rate", a.rate_decay, "at least 0");
  require(a.momentum >= 0.0, "momentum", a.momentum, "at least 0");
  require(a.dampening >= 0.0 && a.dampening <= 1.0, "dampening", a.dampening, "in [0, 1]");
  require(a.step >= 1, "step", static_cast<double>(a.step), "at least 1");
  if (a.kind == OptimizerKind::sgd && a.nesterov && (a.momentum == 0.0 || a.dampening != 0.0))
    throw UsageError("optimizer: Nesterov momentum needs a momentum above 0 and no dampening");
}

// A factor that fp32 cannot hold would make every weight infinite or NaN; an epsilon that becomes 0 divides
// by it.
void require_fp32(const UpdateConstants& c, const OptimizerArguments& a) {
  constexpr const char* fits = "such that fp32 holds what it comes to";
  require(std::isfinite(c.gradient_scale), "gradient scale", a.gradient_scale, "finite");
  require(std::isfinite(c.beta1), "momentum", a.momentum, fits);
  require(std::isfinite(c.epsilon) && (c.epsilon > 0 || a.epsilon == 0), "epsilon", a.epsilon,
          "0 or a number above 0 that fp32 holds");
  require(std::isfinite(c.coupled_decay), "weight decay", a.weight_decay, fits);
  require(std::isfinite(c.decay), "weight decay times the learning rate", a.learning_rate * a.weight_decay,
          fits);
  require(std::isfinite(c.step_size), "learning rate", a.learning_rate, fits);
}

bool decay_is_coupled(const OptimizerArguments& a) {
  if (a.kind == OptimizerKind::adam) return !a.decoupled;
  return a.kind != OptimizerKind::lion;
}

double step_size(const OptimizerArguments& a) {
  const auto step = static_cast<double>(a.step);
  if (a.kind == OptimizerKind::adam) return a.learning_rate / (1.0 - std::pow(a.beta1, step));
  if (a.kind == OptimizerKind::adagrad) return a.learning_rate / (1.0 + (step - 1.0) * a.rate_decay);
  return a.learning_rate;
}

}  // namespace

std::string_view name_of(OptimizerKind kind) {
  constexpr std::string_view names[] = {"adam", "adagrad", "lion", "sgd"};
  return names[static_cast<std::size_t>(kind)];
}

UpdateConstants constants_of(const OptimizerArguments& a) {
  require_meaning(a);
  const bool sgd = a.kind == OptimizerKind::sgd, coupled = decay_is_coupled(a);
  const double bias2 = 1.0 - std::pow(a.beta2, static_cast<double>(a.step));
  const double rest1 = !sgd ? 1.0 - a.beta1 : a.step == 1 ? 1.0 : 1.0 - a.dampening;
  const UpdateConstants constants{
      .kind = a.kind,
      .amsgrad = a.kind == OptimizerKind::adam && a.amsgrad,
      .momentum = sgd && a.momentum != 0.0,
      .nesterov = sgd && a.nesterov,
      .gradient_scale = a.maximize ? -a.gradient_scale : a.gradient_scale,
      .beta1 = static_cast<float>(sgd ? a.momentum : a.beta1),
      .one_minus_beta1 = static_cast<float>(rest1),
      .beta2 = static_cast<float>(a.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - a.beta2),
      .sqrt_bias2 = static_cast<float>(std::sqrt(bias2)),
      .epsilon = static_cast<float>(a.epsilon),
      .coupled_decay = coupled ? static_cast<float>(a.weight_decay) : 0.0f,
      .decay = coupled ? 1.0f : static_cast<float>(1.0 - a.learning_rate * a.weight_decay),
      .step_size = static_cast<float>(step_size(a)),
      .rounding_key = rounding_key(a.seed, a.step),
  };
  require_fp32(constants, a);
  return constants;
}

}  // namespace headrace
