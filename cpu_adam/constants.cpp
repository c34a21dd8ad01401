#include <cmath>

#include "headrace/adam.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

// Written so that NaN fails.
void require(bool holds, const char* name, double value, const char* range) {
  if (!holds) throw UsageError(fmt::format("optimizer: {} is {}; it must be {}", name, value, range));
}

}  // namespace

AdamConstants constants_of(const AdamArguments& a) {
  require(a.learning_rate >= 0.0, "learning rate", a.learning_rate, "at least 0");
  require(a.beta1 >= 0.0 && a.beta1 < 1.0, "beta1", a.beta1, "in [0, 1)");
  require(a.beta2 >= 0.0 && a.beta2 < 1.0, "beta2", a.beta2, "in [0, 1)");
  require(a.epsilon >= 0.0, "epsilon", a.epsilon, "at least 0");
  require(a.weight_decay >= 0.0, "weight decay", a.weight_decay, "at least 0");
  require(a.step >= 1, "step", static_cast<double>(a.step), "at least 1");

  const auto step = static_cast<double>(a.step);
  const double bias1 = 1.0 - std::pow(a.beta1, step);
  const double bias2 = 1.0 - std::pow(a.beta2, step);
  return {
      .gradient_scale = a.gradient_scale,
      .beta1 = static_cast<float>(a.beta1),
      .one_minus_beta1 = static_cast<float>(1.0 - a.beta1),
      .beta2 = static_cast<float>(a.beta2),
      .one_minus_beta2 = static_cast<float>(1.0 - a.beta2),
      .sqrt_bias2 = static_cast<float>(std::sqrt(bias2)),
      .epsilon = static_cast<float>(a.epsilon),
      .coupled_decay = a.decoupled ? 0.0f : static_cast<float>(a.weight_decay),
      .decay = a.decoupled ? static_cast<float>(1.0 - a.learning_rate * a.weight_decay) : 1.0f,
      .step_size = static_cast<float>(a.learning_rate / bias1),
  };
}

}  // namespace headrace
