// Llama in Hugging Face's files. transformers 5 keeps the positions' keys in "rope_parameters", before it
// they stood beside the others and in "rope_scaling"; both are read, and written as the older ones, which
// both read.
#include "src/checkpoint/llama_layout.h"

namespace headrace {
namespace {

void read_positions(const ConfigKeys& keys, ModelConfig& config) {
  config.rope_theta = static_cast<float>(keys.positive("rope_theta", 10000));
  keys.require("rope_scaling", {nullptr});
  const std::optional<ConfigKeys> positions = keys.section("rope_parameters");
  if (!positions) return;
  positions->require("rope_type", {"default"});
  config.rope_theta = static_cast<float>(positions->positive("rope_theta", config.rope_theta));
}

ModelConfig read_config(const ConfigKeys& keys) {
  constexpr int most_layers = 1 << 14, largest = 1 << 24;
  ModelConfig config;
  config.family = ModelFamily::llama;
  config.layers = keys.count({"num_hidden_layers"}, 32, most_layers);
  config.width = keys.count({"hidden_size"}, 4096, largest);
  config.heads = keys.count({"num_attention_heads"}, 32, largest);
  config.vocabulary = keys.count({"vocab_size"}, 32000, largest);
  config.max_positions = keys.count({"max_position_embeddings"}, 2048, largest);
  config.tied_embedding = keys.boolean("tie_word_embeddings", false);
  config.mlp_width = keys.count({"intermediate_size"}, 11008, largest);
  config.norm_epsilon = static_cast<float>(keys.positive("rms_norm_eps", 1e-6));
  config.key_heads = keys.optional_count("num_key_value_heads", largest);
  config.head_width = keys.optional_count("head_dim", largest);
  read_positions(keys, config);
  keys.require("hidden_act", {"silu", "swish"});
  keys.require("attention_bias", {false});
  keys.require("mlp_bias", {false});
  keys.require("pretraining_tp", {1});
  return config;
}

nlohmann::ordered_json write_config(const ModelConfig& config) {
  return {{"vocab_size", config.vocabulary},
          {"hidden_size", config.width},
          {"intermediate_size", config.mlp_columns()},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.key_head_count()},
          {"head_dim", config.head_columns()},
          {"max_position_embeddings", config.max_positions},
          {"rms_norm_eps", printed(config.norm_epsilon)},
          {"rope_theta", printed(config.rope_theta)},
          {"rope_scaling", nullptr},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

}  // namespace

FamilyLayout llama_layout() {
  return {.model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .prefix = "model.",
          .native_prefix = "model.",
          .head = "lm_head.weight",
          .tied_to = "model.embed_tokens.weight",
          .ignored = {".rotary_emb.inv_freq"},
          .read_config = read_config,
          .write_config = write_config};
}

}  // namespace headrace
