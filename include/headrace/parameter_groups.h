// Parameter groups as PyTorch has them: parameters that share hyper-parameters of the update. The optimizer
// and the format of its states are common to all. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "headrace/optimizer.h"
#include "headrace/units.h"

namespace headrace {

struct ParameterGroup {
  double learning_rate_factor = 1.0;                  // of the one rate that a step is given
  std::optional<double> beta1{}, beta2{}, epsilon{};  // none: the optimizer's
  // Of every parameter of the group; none: the optimizer's of those that are decayed (units.h), 0 of others.
  std::optional<double> weight_decay{};
  std::optional<bool> maximize{};
  bool operator==(const ParameterGroup&) const = default;
};

// The rate of each group where one is given for all.
std::vector<double> learning_rates_of(const std::vector<ParameterGroup>& groups, double learning_rate);

// The arguments of each group, for its parameters that are not decayed and for those that are. Throws
// UsageError on a value without meaning, naming the group.
std::vector<OptimizerArguments> arguments_of(const std::vector<ParameterGroup>& groups,
                                             const OptimizerArguments& optimizer,
                                             std::span<const double> learning_rates);
// Which of them are a parameter's.
inline std::uint32_t arguments_index(const ParameterSpec& parameter) {
  return 2 * parameter.group + (parameter.weight_decay ? 1 : 0);
}

}  // namespace headrace
