#include "headrace/bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "headrace/errors.h"

namespace headrace {
namespace {

struct Unit {
  std::string_view name;
  Bytes bytes;
};

constexpr std::array<Unit, 12> units = {{{"", 1},
                                         {"B", 1},
                                         {"kB", 1'000},
                                         {"KB", 1'000},
                                         {"MB", 1'000'000},
                                         {"GB", 1'000'000'000},
                                         {"TB", 1'000'000'000'000},
                                         {"KiB", Bytes{1} << 10},
                                         {"MiB", Bytes{1} << 20},
                                         {"GiB", Bytes{1} << 30},
                                         {"TiB", Bytes{1} << 40},
                                         {"PiB", Bytes{1} << 50}}};
// Sizes are also file offsets and differences, which are signed.
constexpr Bytes largest_size = (Bytes{1} << 63) - 1;

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Whole numbers exactly, others by way of a double and rounded to the nearest byte.
Bytes to_bytes(std::string_view digits, double number, const Unit& unit, const std::string& subject) {
  Bytes count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  const double product = number * static_cast<double>(unit.bytes);
  if (whole ? count > largest_size / unit.bytes : product >= 0x1p63)
    throw UsageError(
        fmt::format("{} is more than the largest size, {} bytes (8192 PiB).", subject, largest_size));
  if (whole) return count * unit.bytes;
  if (unit.bytes == 1 && number != std::floor(number))
    throw UsageError(
        fmt::format("{} is a fraction of a byte. Write a whole number of bytes, or a fraction with its unit, "
                    "like 1.5GiB.",
                    subject));
  if (number > 0 && product < 1) throw UsageError(fmt::format("{} is less than one byte.", subject));
  return static_cast<Bytes>(std::llround(product));
}

}  // namespace

std::string format_bytes(Bytes bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 5> names = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < names.size()) value /= 1024, ++unit;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, names[unit]);
}

Bytes parse_bytes(std::string_view text, std::string_view what) {
  const std::string_view trimmed = trim(text);
  double number = 0;
  const auto [end, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), number);
  const std::string_view digits = trimmed.substr(0, static_cast<std::size_t>(end - trimmed.data()));
  const std::string_view suffix = trim(trimmed.substr(digits.size()));
  const auto* const unit =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == suffix; });
  if (error == std::errc::result_out_of_range)  // 1e400, 1e-400
    number = digits.find("e-") == std::string_view::npos ? std::numeric_limits<double>::max()
                                                         : std::numeric_limits<double>::min();
  const bool is_number =
      error != std::errc::invalid_argument && !digits.starts_with('-') && !std::isnan(number);
  if (!is_number || std::isinf(number) || unit == units.end())
    throw UsageError(
        fmt::format("{}: \"{}\" is not a size. Write a number with a unit, for example 64MiB, 2GB, "
                    "1.5GiB or 4096 (bytes).",
                    what, shortened(text)));
  return to_bytes(digits, number, *unit, fmt::format("{}: \"{}\"", what, shortened(text)));
}

}  // namespace headrace
