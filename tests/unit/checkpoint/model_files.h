// Model folders for tests: a small GPT-2 whose weights are a known function of name and element.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headrace/model_folder.h"
#include "headrace/splitmix.h"
#include "headrace/state_hash.h"
#include "support/safetensors_image.h"

namespace headrace::testing {

inline ModelConfig small_config(bool tied = true) {
  return {.name = "small",
          .layers = 2,
          .width = 8,
          .heads = 2,
          .vocabulary = 11,
          .max_positions = 6,
          .tied_embedding = tied};
}
// Large enough for bytes as tokens.
inline ModelConfig exported_config(bool tied) {
  return {.name = "exported",
          .layers = 2,
          .width = 32,
          .heads = 4,
          .vocabulary = 300,
          .max_positions = 64,
          .tied_embedding = tied};
}
inline std::vector<UnitSpec> units_of(const ModelConfig& config) {
  return make_model(config, {.batch = 1, .sequence = 1})->unit_specs();
}

// Exact in every dtype.
inline float value_at(const std::string& name, std::uint64_t element) {
  return static_cast<float>(splitmix64(hash_bytes(name) + element) % 256) / 64.0f - 2.0f;
}

// The parameters of a configuration, with that function for values.
class FunctionSource final : public TensorSource {
 public:
  explicit FunctionSource(const ModelConfig& config, DType dtype = DType::f32) {
    for (const UnitSpec& unit : units_of(config))
      for (const ParameterSpec& parameter : unit.parameters)
        list.push_back({parameter.name, parameter.shape, dtype});
  }
  const std::vector<SourceTensor>& tensors() const override { return list; }
  void read(std::size_t tensor, std::uint64_t first, std::span<float> out) override {
    largest_piece = std::max<std::uint64_t>(largest_piece, out.size());
    for (std::uint64_t i = 0; i < out.size(); ++i) out[i] = value_at(list[tensor].name, first + i);
  }
  std::vector<SourceTensor> list;
  std::uint64_t largest_piece = 0;
};

// Tensors of a file that is written by hand.
struct FileTensor {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes;
};
inline std::string image_of(const std::vector<FileTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t next = 0;
  for (const FileTensor& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {next, next + tensor.bytes}}};
    next += tensor.bytes;
  }
  return safetensors_image(header.dump(), std::string(next, '\0'));
}

}  // namespace headrace::testing
