// Robust figures of few samples.
#pragma once

#include <vector>

namespace headrace::tune {

// Of the middle two, their mean. 0 of nothing.
double median(std::vector<double> values);
// Of the distances from the median.
double median_absolute_deviation(const std::vector<double>& values);

}  // namespace headrace::tune
