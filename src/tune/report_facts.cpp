#include "src/tune/report_facts.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace headrace::tune {

std::vector<std::string> unvaried(const std::vector<TuneTrial>& trials) {
  using Value = std::function<std::uint64_t(const SwapPoint&)>;
  const std::pair<const char*, Value> dimensions[] = {
      {"block size", [](const SwapPoint& point) { return point.block_bytes; }},
      {"buffers", [](const SwapPoint& point) { return point.buffers; }},
      {"queue depth", [](const SwapPoint& point) { return point.queue_depth; }},
      {"request size", [](const SwapPoint& point) { return point.request_bytes; }}};
  std::vector<const SwapPoint*> ran;
  for (const TuneTrial& trial : trials)
    if (trial.failure.empty()) ran.push_back(&trial.point);
  std::vector<std::string> names;
  for (const auto& [name, value] : dimensions)
    if (!ran.empty() && std::all_of(ran.begin(), ran.end(), [&value = value, &ran](const SwapPoint* point) {
          return value(*point) == value(*ran.front());
        }))
      names.emplace_back(name);
  return names;
}

double drift_of(const SwapPoint& point, const std::vector<TuneTrial>& trials) {
  std::vector<double> rates;
  for (const TuneTrial& trial : trials)
    if (trial.failure.empty() && trial.point == point) rates.push_back(trial.parameters_per_second);
  if (rates.size() < 2) return 0;
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  return *least > 0 ? *most / *least : 0;
}

}  // namespace headrace::tune
