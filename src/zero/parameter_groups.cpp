#include "headrace/parameter_groups.h"

#include <cmath>

#include "headrace/errors.h"

namespace headrace {
namespace {

void require_rate(std::size_t group, double rate, const char* what) {
  if (!std::isfinite(rate) || rate < 0)
    throw UsageError(fmt::format("parameter group {}: a {} of {} is not allowed: it must be a number >= 0.",
                                 group, what, rate));
}

OptimizerArguments arguments_of(const ParameterGroup& group, const OptimizerArguments& optimizer,
                                bool decayed) {
  OptimizerArguments arguments = optimizer;
  arguments.beta1 = group.beta1.value_or(optimizer.beta1);
  arguments.beta2 = group.beta2.value_or(optimizer.beta2);
  arguments.epsilon = group.epsilon.value_or(optimizer.epsilon);
  arguments.weight_decay = group.weight_decay.value_or(decayed ? optimizer.weight_decay : 0.0);
  arguments.maximize = group.maximize.value_or(optimizer.maximize);
  return arguments;
}

}  // namespace

std::vector<double> learning_rates_of(const std::vector<ParameterGroup>& groups, double learning_rate) {
  std::vector<double> rates;
  for (const ParameterGroup& group : groups) rates.push_back(group.learning_rate_factor * learning_rate);
  return rates;
}

std::vector<OptimizerArguments> arguments_of(const std::vector<ParameterGroup>& groups,
                                             const OptimizerArguments& optimizer,
                                             std::span<const double> learning_rates) {
  if (learning_rates.size() != groups.size())
    throw UsageError(fmt::format("{} learning rates for {} parameter groups: give one for each.",
                                 learning_rates.size(), groups.size()));
  std::vector<OptimizerArguments> all;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    require_rate(g, groups[g].learning_rate_factor, "learning rate factor");
    require_rate(g, learning_rates[g], "learning rate");
    for (const bool decayed : {false, true}) {
      all.push_back(arguments_of(groups[g], optimizer, decayed));
      all.back().learning_rate = learning_rates[g];
      try {
        constants_of(all.back());
      } catch (const UsageError& error) {
        throw UsageError(fmt::format("parameter group {}: {}", g, error.what()));
      }
    }
  }
  return all;
}

}  // namespace headrace
