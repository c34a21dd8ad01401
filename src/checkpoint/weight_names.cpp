#include "src/checkpoint/weight_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

namespace headrace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? "a scalar" : fmt::format("{}", fmt::join(shape, " x "));
}

std::vector<std::string> differences(const std::vector<NamedShape>& tensors,
                                     const std::vector<UnitSpec>& units) {
  std::vector<std::string> result;
  std::map<std::string, const NamedShape*> found;
  for (const NamedShape& tensor : tensors)
    if (const auto [other, fresh] = found.emplace(tensor.name, &tensor); !fresh)
      result.push_back(
          fmt::format("{} stands twice, as {} and {}", tensor.name, other->second->said_as, tensor.said_as));
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& parameter : unit.parameters) {
      const auto tensor = found.find(parameter.name);
      if (tensor == found.end()) {
        result.push_back(fmt::format("{} is missing ({})", parameter.name, shape_text(parameter.shape)));
        continue;
      }
      if (tensor->second->shape != parameter.shape)
        result.push_back(fmt::format("{} is {}, where the model has {}", tensor->second->said_as,
                                     shape_text(tensor->second->shape), shape_text(parameter.shape)));
      found.erase(tensor);
    }
  for (const auto& [name, tensor] : found)
    result.push_back(fmt::format("{} is not a parameter of the model", tensor->said_as));
  return result;
}

}  // namespace headrace
