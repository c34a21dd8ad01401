#include "src/cli/flag_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "headrace/errors.h"
#include "src/cli/commands.h"

namespace headrace::cli {

double number_of(const std::string& flag, const std::string& text, double least, double most, bool whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least) || value > most ||
      (whole && value != std::floor(value)))
    throw UsageError(fmt::format("{}: \"{}\" is not a {}number from {:g} to {:g}.", flag, shortened(text),
                                 whole ? "whole " : "", least, most));
  return value;
}

std::size_t choice_of(const std::string& flag, const std::vector<std::string>& given,
                      const std::vector<std::string>& names) {
  if (given.empty()) return 0;
  const std::string& name = only_value(flag, given);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw UsageError(
        fmt::format("{}: \"{}\" is not one of {}.", flag, shortened(name), fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace headrace::cli
