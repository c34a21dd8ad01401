#include "src/checkpoint/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "headrace/errors.h"
#include "src/checkpoint/strict_json.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

std::string in_folder(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

// What lies in a folder that has neither of the two names must not be taken for no weights.
void refuse_other_weights(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".safetensors"))
      throw UsageError(
          fmt::format("{} holds {}, but neither {} nor {}: some of its files are missing. Fetch them, or "
                      "remove {} to start at random weights.",
                      folder, name, single_file_name, index_file_name, name));
    if (name.starts_with("pytorch_model") && (name.ends_with(".bin") || name.ends_with(".index.json")))
      throw UsageError(
          fmt::format("{} holds its weights in {}, which is not read. Have transformers write them as "
                      "safetensors (save_pretrained), or remove it to start at random weights.",
                      folder, name));
  }
}

[[noreturn]] void refuse_index(const std::string& path, const std::string& why) {
  throw CorruptData(fmt::format("{}: {}. Fetch or write it again.", path, why));
}

// Tensor -> file, as the index says. A name with a folder in it could lead anywhere.
std::map<std::string, std::string> read_index(const std::string& path) {
  const nlohmann::json json = read_json_object(path);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) refuse_index(path, "it has no \"weight_map\"");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      refuse_index(
          path, fmt::format("tensor \"{}\" is in {}, which is not the name of a safetensors file beside it",
                            shortened(tensor), shortened(file.dump())));
    files[tensor] = name;
  }
  return files;
}

// Each tensor of the index in its file, and no other in any.
void check_index(const std::string& path, const std::map<std::string, std::string>& index,
                 const std::vector<SafetensorsFile>& files) {
  std::vector<std::string> differences;
  std::set<std::string> found;
  for (const SafetensorsFile& file : files)
    for (const StoredTensor& tensor : file.tensors()) {
      const std::string name = fs::path(file.path()).filename().string();
      const auto place = index.find(tensor.name);
      if (place == index.end() || place->second != name)
        differences.push_back(
            fmt::format("{} holds {}, which the index does not place there", name, tensor.name));
      else
        found.insert(tensor.name);
    }
  for (const auto& [tensor, file] : index)
    if (!found.contains(tensor)) differences.push_back(fmt::format("{} is not in {}", tensor, file));
  if (!differences.empty())
    refuse_index(path, fmt::format("it does not belong to the files beside it:\n  {}\n",
                                   fmt::join(differences, "\n  ")));
}

std::vector<SafetensorsFile> open_shards(const std::string& folder, const std::string& path) {
  const auto index = read_index(path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  std::vector<std::string> missing;
  for (const std::string& name : names)
    if (!exists(in_folder(folder, name))) missing.push_back(name);
  if (!missing.empty())
    throw UsageError(
        fmt::format("{} names files that are not there: {}. Fetch them.", path, fmt::join(missing, ", ")));
  std::vector<SafetensorsFile> files;
  for (const std::string& name : names) files.push_back(SafetensorsFile::open(in_folder(folder, name)));
  check_index(path, index, files);
  return files;
}

}  // namespace

std::vector<SafetensorsFile> open_weight_files(const std::string& folder) {
  const std::string single = in_folder(folder, single_file_name), index = in_folder(folder, index_file_name);
  if (exists(single) && exists(index))
    throw UsageError(
        fmt::format("{} holds both {} and {}: only one of them can be the model's weights. Remove the other.",
                    folder, single_file_name, index_file_name));
  if (exists(index)) return open_shards(folder, index);
  std::vector<SafetensorsFile> files;
  if (exists(single))
    files.push_back(SafetensorsFile::open(single));
  else
    refuse_other_weights(folder);
  return files;
}

}  // namespace headrace
