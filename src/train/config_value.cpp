#include "src/train/config_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

#include "headrace/errors.h"

namespace headrace {
namespace {

// A value as a number: none of the right kind, or beyond what the type holds.
enum class Reading : std::uint8_t { good, not_a_number, beyond };

template <class Number>
Reading read_whole(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return Reading::not_a_number;
  return error == std::errc::result_out_of_range ? Reading::beyond : Reading::good;
}

Reading read_double(const Json& value, double& number) {
  if (value.is_string()) return read_whole(value.get_ref<const std::string&>(), number);
  if (!value.is_number()) return Reading::not_a_number;
  number = value.get<double>();
  return Reading::good;
}

Reading read_count(const Json& value, std::uint64_t& count) {
  if (value.is_number_unsigned()) return count = value.get<std::uint64_t>(), Reading::good;
  if (value.is_string())
    if (const Reading reading = read_whole(value.get_ref<const std::string&>(), count);
        reading != Reading::not_a_number)
      return reading;
  double number = 0;  // 1e9, as a text or in a file
  if (const Reading reading = read_double(value, number); reading != Reading::good) return reading;
  if (!(number >= 0) || number != std::floor(number)) return Reading::not_a_number;
  if (number >= 0x1p64) return Reading::beyond;
  count = static_cast<std::uint64_t>(number);
  return Reading::good;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

bool ConfigValue::not_given() const {
  return value_.is_null() || (value_.is_string() && lower(value_.get<std::string>()) == "auto");
}

std::string ConfigValue::shown() const {
  return shortened(value_.is_string() ? '"' + value_.get<std::string>() + '"'
                                      : value_.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void ConfigValue::refuse(std::string_view wanted) const {
  throw UsageError(fmt::format("{}: {} is not {}.", key_, shown(), wanted));
}

std::uint64_t ConfigValue::count(std::uint64_t minimum, std::uint64_t maximum) const {
  std::uint64_t result = 0;
  const Reading reading = read_count(value_, result);
  const bool above = reading == Reading::beyond || (reading == Reading::good && result > maximum);
  if (maximum < largest_count && (above || reading != Reading::good || result < minimum))
    refuse(fmt::format("a whole number from {} to {}", minimum, maximum));
  if (above) throw UsageError(fmt::format("{}: {} is too large. The largest is {}.", key_, shown(), maximum));
  if (reading != Reading::good || result < minimum)
    refuse(fmt::format("a whole number of at least {}", minimum));
  return result;
}

double ConfigValue::number(double minimum, double maximum) const {
  double result = 0;
  const Reading reading = read_double(value_, result);
  if (reading == Reading::beyond)
    throw UsageError(
        fmt::format("{}: {} is beyond what a 64-bit floating-point number holds.", key_, shown()));
  if (reading == Reading::not_a_number || !std::isfinite(result) || result < minimum || result > maximum)
    refuse(maximum == std::numeric_limits<double>::infinity()
               ? fmt::format("a number of at least {}", minimum)
               : fmt::format("a number from {} to {}", minimum, maximum));
  return result;
}

Bytes ConfigValue::bytes() const {
  if (value_.is_string()) return parse_bytes(value_.get<std::string>(), key_);
  return count();
}

bool ConfigValue::boolean() const {
  if (value_.is_boolean()) return value_.get<bool>();
  const std::string text = value_.is_string() ? lower(value_.get<std::string>()) : "";
  if (text != "true" && text != "false") refuse("true or false");
  return text == "true";
}

std::string ConfigValue::text() const {
  if (!value_.is_string()) refuse("a text");
  const auto& text = value_.get_ref<const std::string&>();
  if (text.empty())
    throw UsageError(fmt::format("{}: the value is empty. Leave it out for the default.", key_));
  try {
    static_cast<void>(value_.dump());  // it is printed as JSON again
  } catch (const Json::type_error&) {
    throw UsageError(fmt::format("{}: the value is not UTF-8 text.", key_));
  }
  return text;
}

std::size_t ConfigValue::choice(std::initializer_list<std::string_view> names) const {
  const std::string given = value_.is_string() ? lower(value_.get<std::string>()) : value_.dump();
  std::vector<std::string> lowered;
  for (const std::string_view name : names) lowered.push_back(lower(std::string(name)));
  const auto found = std::find(lowered.begin(), lowered.end(), given);
  if (found != lowered.end()) return static_cast<std::size_t>(found - lowered.begin());
  const std::string nearest = nearest_name(given, lowered);
  throw UsageError(fmt::format("{}: {} is not one of {}.{}", key_, shown(), fmt::join(names, ", "),
                               nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
}

}  // namespace headrace
