// Paths as a shell takes them, for the commands that a message asks its reader to run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// The path as it is where a shell reads it so, else in single quotes; never one that looks like a flag.
std::string shell_word(std::string_view path);
std::string shell_words(const std::vector<std::string>& paths);  // with spaces between them

}  // namespace headrace
