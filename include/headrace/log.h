// Progress and logs go to stderr through spdlog; stdout carries results only. warn_once keeps a repeated
// condition to one line.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace headrace {

enum class LogLevel { quiet, normal, verbose };
void set_log_level(LogLevel level);
void set_log_rank(int rank);  // ranks other than 0 log warnings only, with their number

void log_info(std::string_view message);
void log_verbose(std::string_view message);
void log_warning(std::string_view message);
// The first call with this key logs; returns whether it did. Any thread.
bool warn_once(std::string_view key, std::string_view message);

}  // namespace headrace
