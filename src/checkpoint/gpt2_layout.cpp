// GPT-2 in Hugging Face's files. Keys that concern other uses than training (generation, classification) and
// dropout, which the native model does not have, are left aside.
#include "src/checkpoint/gpt2_layout.h"

namespace headrace {
namespace {

ModelConfig read_config(const ConfigKeys& keys) {
  constexpr int most_layers = 1 << 14, largest = 1 << 24;
  ModelConfig config;
  config.layers = keys.count({"n_layer", "num_hidden_layers"}, 12, most_layers);
  config.width = keys.count({"n_embd", "hidden_size"}, 768, largest);
  config.heads = keys.count({"n_head", "num_attention_heads"}, 12, largest);
  config.vocabulary = keys.count({"vocab_size"}, 50257, largest);
  config.max_positions = keys.count({"n_positions", "max_position_embeddings"}, 1024, largest);
  config.tied_embedding = keys.boolean("tie_word_embeddings", true);
  // "gelu_pytorch_tanh" is the same function by another name.
  keys.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.mlp_width = keys.optional_count("n_inner", largest);
  config.norm_epsilon = static_cast<float>(keys.positive("layer_norm_epsilon", 1e-5));
  keys.require("scale_attn_weights", {true});
  keys.require("scale_attn_by_inverse_layer_idx", {false});
  keys.require("reorder_and_upcast_attn", {false});
  keys.require("add_cross_attention", {false});
  keys.require("pruned_heads", {nullptr, nlohmann::json::object()});
  return config;
}

nlohmann::ordered_json write_config(const ModelConfig& config) {
  constexpr int end_of_text = 50256;  // of the vocabulary that GPT-2 was published with
  const nlohmann::ordered_json end =
      config.vocabulary == end_of_text + 1 ? nlohmann::ordered_json(end_of_text) : nlohmann::ordered_json();
  return {{"vocab_size", config.vocabulary},
          {"n_positions", config.max_positions},
          {"n_embd", config.width},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_inner", config.mlp_width > 0 ? nlohmann::ordered_json(config.mlp_width) : nullptr},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", printed(config.norm_epsilon)},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"reorder_and_upcast_attn", false},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"bos_token_id", end},
          {"eos_token_id", end}};
}

}  // namespace

FamilyLayout gpt2_layout() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .prefix = "transformer.",
          .native_prefix = "",
          .head = "lm_head.weight",
          .tied_to = "wte.weight",
          .ignored = {".attn.bias", ".attn.masked_bias"},  // the causal mask
          .read_config = read_config,
          .write_config = write_config};
}

}  // namespace headrace
