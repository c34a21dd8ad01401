// The safetensors files of a model folder: model.safetensors, or the shards of model.safetensors.index.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/safetensors.h"

namespace headrace {

inline constexpr std::string_view single_file_name = "model.safetensors";
inline constexpr std::string_view index_file_name = "model.safetensors.index.json";
inline constexpr std::string_view config_file_name = "config.json";

// All of them, opened and checked against the index; none where the folder holds no weights. UsageError where
// it is not clear what the weights are, CorruptData where files or index are damaged.
std::vector<SafetensorsFile> open_weight_files(const std::string& folder);

}  // namespace headrace
