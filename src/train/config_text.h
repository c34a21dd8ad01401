// A configuration file's text as JSON, more strictly than JSON itself: no key twice in an object. What is
// wrong is told with its line and column and what should stand there.
#pragma once

#include <string>
#include <string_view>

#include "src/train/config_value.h"

namespace headrace {

// The text of a regular file; anything else (a folder, a pipe, a device) is a UsageError.
std::string read_config_text(const std::string& path);
// `origin` names the text in errors.
Json parse_config_text(std::string_view text, const std::string& origin);

}  // namespace headrace
