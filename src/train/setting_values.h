// Readings of a value that several settings share.
#pragma once

#include <vector>

#include "headrace/bytes.h"
#include "src/train/config_value.h"

namespace headrace::settings {

// The size of a buffer, at most 64 GiB.
Bytes buffer_bytes(const ConfigValue& value, Bytes minimum);
// At least 0, and in fp32, in which weights are updated, finite and above 0 where it is above 0.
double fp32_number(const ConfigValue& value);
// "8GB/s", or bytes per second.
Bytes rate_of(const ConfigValue& value);
// A list, or one value alone.
std::vector<ConfigValue> values_of(const ConfigValue& value);

}  // namespace headrace::settings
