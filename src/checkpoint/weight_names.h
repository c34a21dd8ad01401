// Whether a list of tensors is a model: what is compared on the way in and on the way out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/units.h"

namespace headrace {

std::string shape_text(const std::vector<std::int64_t>& shape);  // "50257 x 768", "a scalar"

// The tensors that stand for the parameters of `units`, in their order, and every reason why they do not.
struct NamedShape {
  std::string name;     // native
  std::string said_as;  // in messages
  std::vector<std::int64_t> shape;
};
std::vector<std::string> differences(const std::vector<NamedShape>& tensors,
                                     const std::vector<UnitSpec>& units);

}  // namespace headrace
