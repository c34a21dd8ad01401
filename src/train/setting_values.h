// Readings of a value that several settings share.
#pragma once

#include <vector>

#include "headrace/bytes.h"
#include "src/train/config_value.h"

namespace headrace::settings {

// The size of a buffer, at most 64 GiB.
Bytes buffer_bytes(const ConfigValue& value, Bytes minimum);
// "8GB/s", or bytes per second.
Bytes rate_of(const ConfigValue& value);
// A list, or one value alone.
std::vector<ConfigValue> values_of(const ConfigValue& value);

}  // namespace headrace::settings
