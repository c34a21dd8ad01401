#include "headrace/statistics.h"

#include <algorithm>
#include <cmath>

namespace headrace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median_deviation(const std::vector<double>& values) {
  const double center = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - center));
  return median(std::move(distances));
}

}  // namespace headrace
