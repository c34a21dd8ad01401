// Robust figures of few samples.
#pragma once

#include <vector>

namespace headrace {

// Of the middle two, their mean. 0 of nothing.
double median(std::vector<double> values);
// The median of the distances from the median.
double median_deviation(const std::vector<double>& values);

}  // namespace headrace
