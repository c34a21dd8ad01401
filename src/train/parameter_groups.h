// The setting `parameter_groups`: which parameters, by patterns of their names, have hyper-parameters of
// their own.
#pragma once

#include <string>
#include <vector>

#include "headrace/config.h"
#include "src/train/config_value.h"

namespace headrace {

struct Settings;

// An array of objects, or their text on the command line.
std::vector<NamedGroup> parameter_groups_of(const ConfigValue& value);
// The same again; null where there is none.
Json parameter_groups_json(const std::vector<NamedGroup>& groups);

// Group 0 for what no pattern matches, then those given. Throws UsageError where one says what the optimizer
// has not.
std::vector<ParameterGroup> engine_groups(const Settings& settings);

}  // namespace headrace
