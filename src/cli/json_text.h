// JSON as it is printed: a path may be any bytes, JSON is UTF-8.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace headrace::cli {

inline std::string json_text(const nlohmann::ordered_json& object) {
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace headrace::cli
