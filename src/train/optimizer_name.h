// What a user calls an optimizer.
#pragma once

#include <string_view>

#include "headrace/optimizer.h"

namespace headrace {

// "adamw", "adam", ...: a value of --optimizer.
std::string_view optimizer_name(const OptimizerArguments& optimizer);

}  // namespace headrace
