// Writes a model folder: plan the shards, check source and disk, then stream tensor by tensor.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "headrace/errors.h"
#include "headrace/model_folder.h"
#include "headrace/optimizer_update.h"
#include "src/checkpoint/family_layout.h"
#include "src/checkpoint/partial_folder.h"
#include "src/checkpoint/safetensors_writer.h"
#include "src/checkpoint/weight_files.h"
#include "src/checkpoint/weight_names.h"

namespace headrace {
namespace {

struct Shard {
  std::string name;
  std::vector<std::size_t> sources;  // of TensorSource::tensors()
  std::vector<TensorDescription> tensors;
  Bytes data_bytes = 0;
};

// transformers refuses files that do not say so.
const SafetensorsMetadata file_metadata = {{"format", "pt"}};

void check_source(const std::string& folder, const ModelConfig& config, const TensorSource& source) {
  std::vector<NamedShape> shapes;
  for (const SourceTensor& tensor : source.tensors())
    shapes.push_back({tensor.name, tensor.name, tensor.shape});
  const auto units = make_model(config, {.batch = 1, .sequence = 1})->unit_specs();
  if (const std::vector<std::string> list = differences(shapes, units); !list.empty())
    throw UsageError(fmt::format("{} is not written: what is exported is not the model {}:\n  {}", folder,
                                 config.name, fmt::join(list, "\n  ")));
}

DType dtype_of(const SourceTensor& tensor, const ExportOptions& options) {
  return options.dtype.value_or(tensor.dtype);
}

std::vector<Shard> plan_shards(const FamilyLayout& family, const std::vector<SourceTensor>& tensors,
                               const ExportOptions& options) {
  std::vector<Shard> shards(1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorDescription tensor{.name = family.file_name(tensors[i].name),
                                   .dtype = safetensors_dtype(dtype_of(tensors[i], options)),
                                   .shape = {tensors[i].shape.begin(), tensors[i].shape.end()}};
    if (!shards.back().tensors.empty() && shards.back().data_bytes + tensor.bytes() > options.shard_bytes)
      shards.emplace_back();
    shards.back().sources.push_back(i);
    shards.back().data_bytes += tensor.bytes();
    shards.back().tensors.push_back(tensor);
  }
  for (std::size_t s = 0; s < shards.size(); ++s)
    shards[s].name = shards.size() == 1
                         ? std::string(single_file_name)
                         : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
  return shards;
}

std::string index_text(const std::vector<Shard>& shards) {
  nlohmann::ordered_json json;
  Bytes total = 0;
  for (const Shard& shard : shards) total += shard.data_bytes;
  json["metadata"]["total_size"] = total;
  std::map<std::string, std::string> map;
  for (const Shard& shard : shards)
    for (const TensorDescription& tensor : shard.tensors) map[tensor.name] = shard.name;
  json["weight_map"] = map;
  return json.dump(2) + '\n';
}

// One piece on its way from the source to a file.
class Pieces {
 public:
  explicit Pieces(TensorSource& source) : source_(source) {}
  void copy(std::size_t tensor, DType dtype, std::uint64_t numel, SafetensorsWriter& to) {
    wide_.resize(std::min(numel, export_piece_numel));
    for (std::uint64_t first = 0; first < numel; first += wide_.size()) {
      const auto values = std::span(wide_).first(std::min<std::uint64_t>(wide_.size(), numel - first));
      source_.read(tensor, first, values);
      to.write(dtype == DType::f32 ? std::as_bytes(values) : narrowed(tensor, first, values, dtype));
    }
  }

 private:
  std::span<const std::byte> narrowed(std::size_t tensor, std::uint64_t first, std::span<const float> values,
                                      DType dtype) {
    narrow_.resize(values.size());
    round_to(values.data(), narrow_.data(), dtype, values.size());
    for (std::size_t i = 0; dtype == DType::f16 && i < values.size(); ++i)
      if (std::isinf(element_at(narrow_.data(), i, dtype)) && std::isfinite(values[i]))
        throw Error(
            fmt::format("{}, element {}: {} is larger than any number of fp16, 65504. Nothing was written: "
                        "export as bf16 or fp32.",
                        source_.tensors()[tensor].name, first + i, values[i]));
    return std::as_bytes(std::span(narrow_));
  }

  TensorSource& source_;
  std::vector<float> wide_;
  std::vector<std::uint16_t> narrow_;
};

void write_shard(const std::string& folder, const Shard& shard, TensorSource& source, Pieces& pieces,
                 const ExportOptions& options) {
  SafetensorsWriter writer(folder, shard.name, shard.tensors, file_metadata);
  for (const std::size_t tensor : shard.sources) {
    const SourceTensor& from = source.tensors()[tensor];
    const std::uint64_t numel = ParameterSpec{.name = from.name, .shape = from.shape}.numel();
    pieces.copy(tensor, dtype_of(from, options), numel, writer);
  }
  writer.finish();
}

// Of the weights as a whole, for config.json.
DType main_dtype(const std::vector<SourceTensor>& tensors, const ExportOptions& options) {
  return tensors.empty() ? options.dtype.value_or(DType::f32) : dtype_of(tensors.front(), options);
}

}  // namespace

ExportedModel export_model(const std::string& folder, const ModelConfig& config, TensorSource& source,
                           const ExportOptions& options) {
  check_source(folder, config, source);
  const std::vector<Shard> shards = plan_shards(family_of(config), source.tensors(), options);
  const std::string description = model_config_text(config, main_dtype(source.tensors(), options)),
                    index = shards.size() > 1 ? index_text(shards) : "";
  ExportedModel result{.files = {}, .bytes = description.size() + index.size()};
  for (const Shard& shard : shards) {
    result.files.push_back(shard.name);
    result.bytes += safetensors_header(shard.tensors, file_metadata).size() + shard.data_bytes;
  }
  PartialFolder partial(folder);
  require_disk_space(partial.path(), result.bytes, folder);
  Pieces pieces(source);
  for (const Shard& shard : shards) write_shard(partial.path(), shard, source, pieces, options);
  if (!index.empty()) {
    write_whole_file(partial.path(), index_file_name, index);
    result.files.emplace_back(index_file_name);
  }
  write_whole_file(partial.path(), config_file_name, description);
  result.files.emplace_back(config_file_name);
  partial.publish();
  return result;
}

}  // namespace headrace
