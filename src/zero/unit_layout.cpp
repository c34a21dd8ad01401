#include "headrace/bytes.h"
#include "headrace/errors.h"
#include "headrace/units.h"

namespace headrace {

std::uint64_t ParameterSpec::numel() const {
  std::uint64_t product = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0)
      throw UsageError(fmt::format("parameter {} has a negative dimension {}", name, dimension));
    product *= static_cast<std::uint64_t>(dimension);
  }
  return product;
}

UnitLayout make_unit_layout(UnitSpec spec) {
  UnitLayout layout;
  for (const ParameterSpec& parameter : spec.parameters) {
    const std::uint64_t numel = parameter.numel();
    const std::uint64_t offset = round_up(layout.numel, parameter_alignment_numel);
    layout.offsets.push_back(offset);
    layout.parameters_numel += numel;
    if (numel > 0) layout.numel = offset + numel;  // an empty parameter moves nothing
  }
  layout.spec = std::move(spec);
  return layout;
}

}  // namespace headrace
