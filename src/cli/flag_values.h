// Values of flags that are numbers or words, checked.
#pragma once

#include <string>
#include <vector>

namespace headrace::cli {

double number_of(const std::string& flag, const std::string& text, double least, double most, bool whole);
// The choice's place among the names; 0 where none is given.
std::size_t choice_of(const std::string& flag, const std::vector<std::string>& given,
                      const std::vector<std::string>& names);

}  // namespace headrace::cli
