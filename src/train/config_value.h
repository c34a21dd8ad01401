// One value of a configuration file or a flag, read as the type its setting wants. A value of another kind is
// a UsageError that names the key, shows the value and says what is allowed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "headrace/bytes.h"

namespace headrace {

using Json = nlohmann::ordered_json;

// Of steps and the like: exact as a double, far beyond any run.
inline constexpr std::uint64_t largest_count = 1'000'000'000'000'000;

// Whether what names a setting is a flag, not a key of a file.
inline bool is_flag(std::string_view name) {
  return name.starts_with("--");
}

class ConfigValue {
 public:
  // `key` as the user wrote it: "--steps", or "zero_optimization.stage" of a file.
  ConfigValue(std::string key, Json value) : key_(std::move(key)), value_(std::move(value)) {}
  const std::string& key() const { return key_; }
  const Json& json() const { return value_; }
  // null and "auto": the default is kept.
  bool not_given() const;

  std::uint64_t count(std::uint64_t minimum = 0, std::uint64_t maximum = ~std::uint64_t{0}) const;
  double number(double minimum, double maximum) const;
  Bytes bytes() const;
  bool boolean() const;
  std::string text() const;
  // Index of the choice; not case-sensitive.
  std::size_t choice(std::initializer_list<std::string_view> names) const;

  [[noreturn]] void refuse(std::string_view wanted) const;

 private:
  std::string shown() const;
  std::string key_;
  Json value_;
};

}  // namespace headrace
