#include "src/checkpoint/family_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/model_folder.h"
#include "src/checkpoint/gpt2_layout.h"
#include "src/checkpoint/llama_layout.h"
#include "src/checkpoint/strict_json.h"
#include "src/checkpoint/weight_files.h"

namespace headrace {
namespace {

using Json = nlohmann::json;

const std::vector<FamilyLayout>& families() {
  static const std::vector<FamilyLayout> all{gpt2_layout(), llama_layout()};
  return all;
}

const FamilyLayout& family_of_file(const Json& json, const std::string& path) {
  const auto type = json.find("model_type");
  const FamilyLayout* family =
      type != json.end() && type->is_string() ? find_family(type->get<std::string>()) : nullptr;
  if (family == nullptr)
    throw UsageError(fmt::format(
        "{}: \"model_type\" is {}: the native model does not compute it. Give a model of type {}.", path,
        type == json.end() ? "missing" : shortened(type->dump()), fmt::join(family_names(), " or ")));
  return *family;
}

}  // namespace

const Json* ConfigKeys::find(std::string_view name) const {
  const auto found = json_.find(name);
  return found == json_.end() ? nullptr : &*found;
}

void ConfigKeys::refuse(std::string_view name, const std::string& why) const {
  throw UsageError(fmt::format("{}: \"{}\" is {}: {}.", path_, name, shortened(find(name)->dump()), why));
}

int ConfigKeys::count(const std::vector<std::string_view>& names, int usual, int largest) const {
  for (const std::string_view name : names) {
    const Json* value = find(name);
    if (value == nullptr) continue;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < 1 ||
        value->get<std::uint64_t>() > static_cast<std::uint64_t>(largest))
      refuse(name, fmt::format("it must be a whole number from 1 to {}", largest));
    return value->get<int>();
  }
  return usual;
}

int ConfigKeys::optional_count(std::string_view name, int largest) const {
  const Json* value = find(name);
  return value == nullptr || value->is_null() ? 0 : count({name}, 0, largest);
}

double ConfigKeys::positive(std::string_view name, double usual) const {
  const Json* value = find(name);
  if (value == nullptr) return usual;
  if (!value->is_number() || !(value->get<double>() > 0) || !std::isfinite(value->get<double>()))
    refuse(name, "it must be a number above 0");
  return value->get<double>();
}

std::optional<ConfigKeys> ConfigKeys::section(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_object()) refuse(name, "it must be a section in braces");
  return ConfigKeys(*value, path_);
}

bool ConfigKeys::boolean(std::string_view name, bool usual) const {
  const Json* value = find(name);
  if (value == nullptr) return usual;
  if (!value->is_boolean()) refuse(name, "it must be true or false");
  return value->get<bool>();
}

std::vector<std::int32_t> ConfigKeys::token_ids(std::string_view name, int vocabulary) const {
  const Json* value = find(name);
  if (value == nullptr || value->is_null()) return {};
  std::vector<std::int32_t> ids;
  for (const Json& one : value->is_array() ? *value : Json::array({*value})) {
    if (!one.is_number_integer()) refuse(name, "it must be a token id or a list of them");
    const auto id = one.get<std::int64_t>();
    if (id >= 0 && id < vocabulary) ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

void ConfigKeys::require(std::string_view name, const std::vector<Json>& allowed) const {
  const Json* value = find(name);
  if (value == nullptr) return;
  for (const Json& one : allowed)
    if (*value == one) return;
  std::vector<std::string> texts;
  for (const Json& one : allowed) texts.push_back(one.dump());
  refuse(name, fmt::format("the native model computes {} alone", fmt::join(texts, " or ")));
}

std::string FamilyLayout::file_name(const std::string& native) const {
  return native == head ? native : std::string(prefix) + native.substr(native_prefix.size());
}

std::optional<std::string> FamilyLayout::native_name(std::string_view in_file) const {
  if (in_file.starts_with(prefix)) in_file.remove_prefix(prefix.size());
  for (const std::string_view end : ignored)
    if (in_file.ends_with(end)) return std::nullopt;
  return in_file == head ? std::string(in_file) : std::string(native_prefix) + std::string(in_file);
}

double printed(float value) {
  return std::stod(fmt::format("{}", value));
}

const FamilyLayout* find_family(std::string_view model_type) {
  for (const FamilyLayout& family : families())
    if (family.model_type == model_type) return &family;
  return nullptr;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const FamilyLayout& family : families()) names.push_back(family.model_type);
  return names;
}

const FamilyLayout& family_of(const ModelConfig& config) {
  return *find_family(config.family == ModelFamily::llama ? "llama" : "gpt2");
}

std::string model_config_text(const ModelConfig& config, DType dtype) {
  const FamilyLayout& family = family_of(config);
  nlohmann::ordered_json json = {{"architectures", {family.architecture}}, {"model_type", family.model_type}};
  json.update(family.write_config(config));
  if (config.end_tokens.size() == 1)
    json["eos_token_id"] = config.end_tokens.front();
  else if (!config.end_tokens.empty())
    json["eos_token_id"] = config.end_tokens;
  json["tie_word_embeddings"] = config.tied_embedding;
  constexpr const char* names[] = {"float32", "bfloat16", "float16"};  // torch's
  json["torch_dtype"] = names[static_cast<std::size_t>(dtype)];
  return json.dump(2) + '\n';
}

static ModelConfig config_of(const Json& json, const std::string& path) {
  const FamilyLayout& family = family_of_file(json, path);
  const ConfigKeys keys(json, path);
  keys.require("quantization_config", {nullptr});
  keys.require("is_encoder_decoder", {false});
  ModelConfig config = family.read_config(keys);
  config.end_tokens = keys.token_ids("eos_token_id", config.vocabulary);
  if (config.head_width == 0 && config.width % config.heads != 0)
    throw UsageError(
        fmt::format("{}: a width of {} is not a multiple of {} heads.", path, config.width, config.heads));
  return config;
}

ModelConfig read_model_config(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / config_file_name).string();
  std::error_code error;
  const bool is_there =
      std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
  if (!is_there && is_checkpoint(folder))
    throw UsageError(
        fmt::format("{0} is a checkpoint, and no model's folder. --load-weights {0} begins a run with its "
                    "weights, and `headrace export {0} --to DIR` makes a model's folder of it.",
                    folder));
  if (!is_there)
    throw UsageError(
        fmt::format("{} is no model's folder: there is no {} in it. Give the folder of one, or one of {}.",
                    folder, config_file_name, fmt::join(model_preset_names(), ", ")));
  ModelConfig config = config_of(read_json_object(path), path);
  config.name = folder;
  return config;
}

ModelConfig parse_model_config(const std::string& text, const std::string& place) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) throw UsageError(fmt::format("{} does not say what model it is of.", place));
  ModelConfig config = config_of(json, place);
  config.name = place;
  return config;
}

}  // namespace headrace
