#include "src/model/gpt2_units.h"

#include <cmath>
#include <limits>

#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr float weight_std = 0.02f;

const std::vector<ModelConfig>& presets() {
  static const std::vector<ModelConfig> all{
      // gpt2-nano is for tests: whole runs in a second.
      {.name = "gpt2-nano", .layers = 2, .width = 64, .heads = 2, .vocabulary = 256, .max_positions = 128},
      {.name = "gpt2-mini", .layers = 6, .width = 384, .heads = 6, .vocabulary = 256, .max_positions = 256},
      {.name = "gpt2-70m", .layers = 10, .width = 768, .heads = 12, .vocabulary = 256, .max_positions = 1024},
      {.name = "gpt2-124m",
       .layers = 12,
       .width = 768,
       .heads = 12,
       .vocabulary = 50257,
       .max_positions = 1024},
      {.name = "gpt2-355m",
       .layers = 24,
       .width = 1024,
       .heads = 16,
       .vocabulary = 50257,
       .max_positions = 1024},
  };
  return all;
}

ParameterSpec weight(std::string name, std::int64_t rows, std::int64_t columns, float std) {
  return {.name = std::move(name), .shape = {rows, columns}, .weight_decay = true, .initial_std = std};
}

ParameterSpec vector_of(std::string name, std::int64_t width, float value) {
  return {.name = std::move(name), .shape = {width}, .weight_decay = false, .initial_mean = value};
}

UnitSpec block_spec(const ModelConfig& config, int layer) {
  const std::int64_t c = config.width;
  const float residual_std = weight_std / std::sqrt(2.0f * static_cast<float>(config.layers));
  const std::string unit = fmt::format("h.{}", layer);
  const auto name = [&unit](const char* parameter) { return unit + "." + parameter; };
  return {
      unit,
      {vector_of(name("ln_1.weight"), c, 1), vector_of(name("ln_1.bias"), c, 0),
       weight(name("attn.c_attn.weight"), c, 3 * c, weight_std),
       vector_of(name("attn.c_attn.bias"), 3 * c, 0), weight(name("attn.c_proj.weight"), c, c, residual_std),
       vector_of(name("attn.c_proj.bias"), c, 0), vector_of(name("ln_2.weight"), c, 1),
       vector_of(name("ln_2.bias"), c, 0), weight(name("mlp.c_fc.weight"), c, 4 * c, weight_std),
       vector_of(name("mlp.c_fc.bias"), 4 * c, 0), weight(name("mlp.c_proj.weight"), 4 * c, c, residual_std),
       vector_of(name("mlp.c_proj.bias"), c, 0)}};
}

void require(bool holds, const ModelConfig& config, const std::string& what) {
  if (!holds) throw UsageError(fmt::format("model {}: {}", config.name, what));
}

}  // namespace

ModelConfig model_preset(const std::string& name) {
  for (const ModelConfig& config : presets())
    if (config.name == name) return config;
  const std::string nearest = nearest_name(name, model_preset_names());
  throw UsageError(fmt::format("no model is called {}{}; there are {}", name,
                               nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                               fmt::join(model_preset_names(), ", ")));
}

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const ModelConfig& config : presets()) names.push_back(config.name);
  return names;
}

void check_gpt2(const ModelConfig& config, const ModelOptions& options) {
  require(config.layers >= 0 && config.width > 0 && config.heads > 0 && config.vocabulary > 0 &&
              config.max_positions > 0,
          config,
          fmt::format("{} layers, width {}, {} heads, vocabulary {}, {} positions: each must be positive",
                      config.layers, config.width, config.heads, config.vocabulary, config.max_positions));
  require(config.width % config.heads == 0, config,
          fmt::format("width {} is not a multiple of {} heads", config.width, config.heads));
  require(options.batch > 0 && options.sequence > 0, config,
          fmt::format("{} sequences of {} tokens: each must be positive", options.batch, options.sequence));
  require(
      options.sequence <= config.max_positions, config,
      fmt::format("a sequence of {} tokens is longer than its {} positions: use --sequence-length {} or less",
                  options.sequence, config.max_positions, config.max_positions));
  require(std::int64_t{options.batch} * options.sequence <= std::numeric_limits<std::int32_t>::max(), config,
          fmt::format("{} sequences of {} tokens are too many for one micro-batch: use accumulation",
                      options.batch, options.sequence));
}

std::vector<UnitSpec> gpt2_units(const ModelConfig& config) {
  std::vector<UnitSpec> units;
  units.push_back({"embedding",
                   {weight("wte.weight", config.vocabulary, config.width, weight_std),
                    weight("wpe.weight", config.max_positions, config.width, weight_std)}});
  for (int layer = 0; layer < config.layers; ++layer) units.push_back(block_spec(config, layer));
  UnitSpec head{"head", {vector_of("ln_f.weight", config.width, 1), vector_of("ln_f.bias", config.width, 0)}};
  if (!config.tied_embedding)
    head.parameters.push_back(weight("lm_head.weight", config.vocabulary, config.width, weight_std));
  units.push_back(std::move(head));
  return units;
}

std::byte* FlatUnit::at(std::size_t parameter) const {
  return base + layout->offsets.at(parameter) * size_of(dtype);
}

Matrix FlatUnit::matrix_of(std::size_t parameter) const {
  const std::vector<std::int64_t>& shape = layout->spec.parameters.at(parameter).shape;
  return matrix(at(parameter), dtype, shape.at(0), shape.at(1));
}

}  // namespace headrace
