#pragma once

namespace headrace::cli {

inline constexpr const char* version = "0.1.0";

}  // namespace headrace::cli
