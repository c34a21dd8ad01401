// JSON files that others wrote: of bounded size and depth, and no key may stand twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace headrace {

// The object that the file holds. IoError where it cannot be read, CorruptData naming the file otherwise.
nlohmann::json read_json_object(const std::string& path);

}  // namespace headrace
