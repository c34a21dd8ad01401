#include "src/train/setting_values.h"

#include <fmt/format.h>

#include <limits>

#include "headrace/errors.h"

namespace headrace::settings {

Bytes buffer_bytes(const ConfigValue& value, Bytes minimum) {
  constexpr Bytes maximum = Bytes{64} << 30;
  const Bytes bytes = value.bytes();
  if (bytes < minimum || bytes > maximum)
    value.refuse(fmt::format("a size from {} to {}", minimum < 1024 ? "1 byte" : format_bytes(minimum),
                             format_bytes(maximum)));
  return bytes;
}

double fp32_number(const ConfigValue& value) {
  using Limits = std::numeric_limits<float>;
  const double number = value.number(0, std::numeric_limits<double>::infinity());
  if (number > Limits::max() || (number > 0 && static_cast<float>(number) == 0))
    value.refuse(
        fmt::format("0 or a number from {:.2g} to {:.2g}, which fp32 holds; weights are updated in it",
                    Limits::denorm_min(), Limits::max()));
  return number;
}

Bytes rate_of(const ConfigValue& value) {
  std::string text = value.json().is_string() ? value.text() : value.json().dump();
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  try {
    return parse_bytes(text, value.key());
  } catch (const UsageError&) {
    value.refuse("a rate like 8GB/s or 1.5GiB/s, or a number of bytes per second");
  }
}

std::vector<ConfigValue> values_of(const ConfigValue& value) {
  std::vector<ConfigValue> values;
  if (!value.json().is_array()) return {value};
  for (const Json& element : value.json()) values.emplace_back(value.key(), element);
  if (values.empty()) value.refuse("at least one value");
  return values;
}

}  // namespace headrace::settings
