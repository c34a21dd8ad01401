#include "src/train/config_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "headrace/errors.h"

namespace headrace {
namespace {

// The number that the whole text is, if it is one.
template <class Number>
std::optional<Number> parse_whole(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> as_double(const Json& value) {
  return value.is_number() ? value.get<double>() : parse_whole<double>(value);
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
  return value_.is_string() ? '"' + value_.get<std::string>() + '"' : value_.dump();
}

void ConfigValue::refuse(std::string_view wanted) const {
  throw UsageError(fmt::format("{}: {} is not {}.", key_, shown(), wanted));
}

std::uint64_t ConfigValue::count(std::uint64_t minimum, std::uint64_t maximum) const {
  const std::string wanted = maximum == ~std::uint64_t{0}
                                 ? fmt::format("a whole number of at least {}", minimum)
                                 : fmt::format("a whole number from {} to {}", minimum, maximum);
  std::uint64_t result = 0;
  if (value_.is_number_unsigned()) {
    result = value_.get<std::uint64_t>();
  } else if (const auto whole = parse_whole<std::uint64_t>(value_)) {
    result = *whole;
  } else {
    constexpr double exact_limit = 9007199254740992.0;  // 2^53: every integer up to here is a double
    const double number = as_double(value_).value_or(-1);
    if (!(number >= 0 && number <= exact_limit && number == std::floor(number))) refuse(wanted);
    result = static_cast<std::uint64_t>(number);
  }
  if (result < minimum || result > maximum) refuse(wanted);
  return result;
}

double ConfigValue::number(double minimum, double maximum) const {
  const double result = as_double(value_).value_or(std::numeric_limits<double>::quiet_NaN());
  if (!std::isfinite(result) || result < minimum || result > maximum)
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
  if (!value_.is_string() || value_.get<std::string>().empty()) refuse("a text");
  return value_.get<std::string>();
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
