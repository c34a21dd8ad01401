// Models by name, and the family of each.
#include "headrace/errors.h"
#include "src/model/decoder.h"

namespace headrace {
namespace {

ModelConfig gpt2(std::string name, int layers, int width, int heads, int vocabulary, int max_positions) {
  return {.name = std::move(name),
          .layers = layers,
          .width = width,
          .heads = heads,
          .vocabulary = vocabulary,
          .max_positions = max_positions};
}

const std::vector<ModelConfig>& presets() {
  static const std::vector<ModelConfig> all{
      // -nano is for tests: whole runs in a second.
      gpt2("gpt2-nano", 2, 64, 2, 256, 128),
      gpt2("gpt2-mini", 6, 384, 6, 256, 256),
      gpt2("gpt2-70m", 10, 768, 12, 256, 1024),
      gpt2("gpt2-124m", 12, 768, 12, 50257, 1024),
      gpt2("gpt2-355m", 24, 1024, 16, 50257, 1024),
      gpt2("gpt2-774m", 36, 1280, 20, 50257, 1024),
      gpt2("gpt2-1.5b", 48, 1600, 25, 50257, 1024),
      {.name = "llama-nano",
       .family = ModelFamily::llama,
       .layers = 2,
       .width = 64,
       .heads = 4,
       .vocabulary = 256,
       .max_positions = 128,
       .mlp_width = 176,
       .key_heads = 2},
      {.name = "llama-mini",
       .family = ModelFamily::llama,
       .layers = 6,
       .width = 384,
       .heads = 6,
       .vocabulary = 256,
       .max_positions = 256,
       .mlp_width = 1024,
       .key_heads = 2},
      // JackFram's.
      {.name = "llama-160m",
       .family = ModelFamily::llama,
       .layers = 12,
       .width = 768,
       .heads = 12,
       .vocabulary = 32000,
       .max_positions = 2048,
       .tied_embedding = false,
       .mlp_width = 3072,
       .norm_epsilon = 1e-6f},
      // The shape of Llama 3.2 1B, with the positions that it has without rope_scaling.
      {.name = "llama-1b",
       .family = ModelFamily::llama,
       .layers = 16,
       .width = 2048,
       .heads = 32,
       .vocabulary = 128256,
       .max_positions = 8192,
       .mlp_width = 8192,
       .key_heads = 8,
       .head_width = 64,
       .rope_theta = 500000.0f},
  };
  return all;
}

}  // namespace

ModelConfig model_preset(const std::string& name) {
  if (name == "gpt2-350m") return model_preset("gpt2-355m");  // as some call it
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

std::unique_ptr<DecoderFamily> make_family(const ModelConfig& config, const ModelOptions& options) {
  switch (config.family) {
    case ModelFamily::gpt2:
      return make_gpt2_family(config, options);
    case ModelFamily::llama:
      return make_llama_family(config, options);
  }
  HEADRACE_CHECK(false, "a model of family {}", static_cast<int>(config.family));
  return nullptr;
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const ModelOptions& options) {
  return make_decoder(make_family(config, options), config, options);
}

}  // namespace headrace
