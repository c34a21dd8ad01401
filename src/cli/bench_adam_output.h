// What `bench adam` prints: a table or one JSON object on stdout.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "headrace/adam_bench.h"

namespace headrace::cli {

nlohmann::ordered_json to_json(const AdamBenchReport& report);
std::string to_text(const AdamBenchReport& report);

}  // namespace headrace::cli
