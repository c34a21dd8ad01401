#include "headrace/bytes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "headrace/errors.h"

namespace headrace {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 13> units = {{{"", 1},
                                         {"B", 1},
                                         {"kB", 1e3},
                                         {"KB", 1e3},
                                         {"MB", 1e6},
                                         {"GB", 1e9},
                                         {"TB", 1e12},
                                         {"K", 1024.0},
                                         {"KiB", 1024.0},
                                         {"MiB", 1048576.0},
                                         {"GiB", 1073741824.0},
                                         {"TiB", 1099511627776.0},
                                         {"PiB", 1125899906842624.0}}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
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
  if (error == std::errc{}) {
    const std::string_view suffix = trim(trimmed.substr(static_cast<std::size_t>(end - trimmed.data())));
    for (const Unit& unit : units) {
      const double bytes = number * unit.bytes;
      if (suffix == unit.name && std::isfinite(bytes) && bytes >= 0 && bytes < 9.2e18)
        return static_cast<Bytes>(std::llround(bytes));
    }
  }
  throw UsageError(fmt::format(
      "{}: \"{}\" is not a size. Write a number with a unit, for example 64MiB, 2GB, 1.5GiB or 4096 (bytes).",
      what, text));
}

}  // namespace headrace
