// How a family of models is described and named in Hugging Face's files: config.json, and the names of its
// tensors there. Shapes and orientation are the native ones (a Conv1D weight is in x out, a Linear's out x
// in).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/model.h"

namespace headrace {

// The keys of one config.json. Each getter throws UsageError that names the file, the key and the value.
class ConfigKeys {
 public:
  ConfigKeys(const nlohmann::json& json, const std::string& path) : json_(json), path_(path) {}
  // A whole number from 1 to `largest` by the first of `names` that is there; they are one key's names.
  int count(const std::vector<std::string_view>& names, int usual, int largest) const;
  int optional_count(std::string_view name, int largest) const;  // 0: missing or null
  // A number above 0, likewise.
  double positive(std::string_view name, double usual) const;
  bool boolean(std::string_view name, bool usual) const;
  // One token id or a list of them; those outside the vocabulary stand for none, as -1 does in some files.
  std::vector<std::int32_t> token_ids(std::string_view name, int vocabulary) const;
  // A section's keys; none where it is missing or null.
  std::optional<ConfigKeys> section(std::string_view name) const;
  // Refuses any value but these; a missing key has the usual one, which is right.
  void require(std::string_view name, const std::vector<nlohmann::json>& allowed) const;

 private:
  [[noreturn]] void refuse(std::string_view name, const std::string& why) const;
  const nlohmann::json* find(std::string_view name) const;  // null: missing

  const nlohmann::json& json_;
  const std::string& path_;
};

struct FamilyLayout {
  std::string_view model_type, architecture;  // of config.json
  std::string_view prefix;                    // of all tensors but the head's; optional on reading
  std::string_view native_prefix;             // what stands in its place in native names
  std::string_view head, tied_to;             // native names: the head's table, and what it is where tied
  std::vector<std::string_view> ignored;      // ends of names that old files hold and that are no weights

  ModelConfig (*read_config)(const ConfigKeys& keys);
  nlohmann::ordered_json (*write_config)(const ModelConfig& config);

  std::string file_name(const std::string& native) const;
  // None: no weight.
  std::optional<std::string> native_name(std::string_view in_file) const;
};

// A float as a person would write it: 1e-05, not the digits of its double.
double printed(float value);

const FamilyLayout* find_family(std::string_view model_type);  // null: none of the native ones
std::vector<std::string_view> family_names();
const FamilyLayout& family_of(const ModelConfig& config);

}  // namespace headrace
