// What the trials of a tuning say about the tuning itself. Pure.
#pragma once

#include <string>
#include <vector>

#include "headrace/tune.h"

namespace headrace::tune {

// What every trial that ran has alike ("queue depth"), in words.
std::vector<std::string> unvaried(const std::vector<TuneTrial>& trials);
// The largest to the least rate among the samples of one point; 0: fewer than two.
double drift_of(const SwapPoint& point, const std::vector<TuneTrial>& trials);

}  // namespace headrace::tune
