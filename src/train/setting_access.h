// Setters and getters of the tables of settings, made from a member of Settings.
#pragma once

#include <fmt/format.h>

#include <limits>

#include "headrace/errors.h"
#include "src/train/setting_values.h"
#include "src/train/settings.h"

namespace headrace::settings {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr std::uint64_t int_max = std::numeric_limits<std::int32_t>::max();
using S = Settings;

template <auto member, std::uint64_t minimum = 0, std::uint64_t maximum = ~std::uint64_t{0}>
void set_count(Settings& settings, const ConfigValue& value) {
  settings.*member = value.count(minimum, maximum);
}
template <auto member>
void set_bytes(Settings& settings, const ConfigValue& value) {
  settings.*member = value.bytes();
}
template <auto member>
void set_limit(Settings& settings, const ConfigValue& value) {
  settings.*member = value.bytes();
  if (settings.*member == 0)
    throw UsageError(
        fmt::format("{}: a limit of 0 bytes leaves no memory. Leave it out for no limit.", value.key()));
}
template <auto member>
void set_number(Settings& settings, const ConfigValue& value) {
  settings.*member = value.number(0, infinity);
}
template <auto member>
void set_fp32_number(Settings& settings, const ConfigValue& value) {
  settings.*member = fp32_number(value);
}
template <auto member>
void set_boolean(Settings& settings, const ConfigValue& value) {
  settings.*member = value.boolean();
}
template <auto member>
void set_text(Settings& settings, const ConfigValue& value) {
  settings.*member = value.text();
}
template <auto member>
void set_tier(Settings& settings, const ConfigValue& value) {
  settings.*member = static_cast<Tier>(value.choice({"none", "cpu", "nvme"}));
}
template <auto member>
Json get(const Settings& settings) {
  return settings.*member;
}
template <auto member>
Json get_optional_text(const Settings& settings) {
  return (settings.*member).empty() ? Json() : Json(settings.*member);
}
template <auto member>
Json get_size(const Settings& settings) {
  return settings.*member == 0 ? Json() : Json(settings.*member);
}
template <auto member>
Json get_optional(const Settings& settings) {
  return settings.*member ? Json(*(settings.*member)) : Json();
}
template <auto member>
Json get_tier(const Settings& settings) {
  constexpr const char* names[] = {"none", "cpu", "nvme"};
  return names[static_cast<std::size_t>(settings.*member)];
}
template <auto member>
void set_batch(Settings& settings, const ConfigValue& value) {
  settings.batch.*member = value.count(1, int_max);
}
template <auto member>
Json get_batch(const Settings& settings) {
  return settings.batch.*member == 0 ? Json() : Json(settings.batch.*member);
}
template <auto member, std::uint64_t maximum>
void set_probability(Settings& settings, const ConfigValue& value) {
  settings.*member = value.number(0, maximum);
  if (settings.*member >= 1) value.refuse("a number from 0 to less than 1");
}

}  // namespace headrace::settings
