#include <fmt/format.h>

#include <array>

#include "headrace/bench.h"

namespace headrace {

std::string size_text(Bytes bytes) {
  constexpr std::array<std::string_view, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes > 0 && bytes % 1024 == 0 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, units[unit]);
}

}  // namespace headrace
