#include "src/model/llama_units.h"

#include "headrace/errors.h"
#include "src/model/decoder_units.h"

namespace headrace {
namespace {

UnitSpec block_spec(const ModelConfig& config, int layer) {
  const std::int64_t c = config.width, mlp = config.mlp_columns(), depth = config.head_columns();
  const std::int64_t queries = config.heads * depth, keys = config.key_head_count() * depth;
  const std::string unit = fmt::format("model.layers.{}", layer);
  const auto name = [&unit](const char* parameter) { return fmt::format("{}.{}.weight", unit, parameter); };
  return {unit,
          {vector_parameter(name("input_layernorm"), c, 1),
           matrix_parameter(name("self_attn.q_proj"), queries, c),
           matrix_parameter(name("self_attn.k_proj"), keys, c),
           matrix_parameter(name("self_attn.v_proj"), keys, c),
           matrix_parameter(name("self_attn.o_proj"), c, queries),
           vector_parameter(name("post_attention_layernorm"), c, 1),
           matrix_parameter(name("mlp.gate_proj"), mlp, c), matrix_parameter(name("mlp.up_proj"), mlp, c),
           matrix_parameter(name("mlp.down_proj"), c, mlp)}};
}

// Parameters start at multiples of their alignment: two lie end to end where the first fills it.
bool fills_alignment(std::int64_t numel) {
  return numel % static_cast<std::int64_t>(parameter_alignment_numel) == 0;
}

}  // namespace

void check_llama(const ModelConfig& config, const ModelOptions& options) {
  check_decoder(config, options);
  const std::int64_t width = config.width, depth = config.head_columns(), key_heads = config.key_head_count();
  require(config.rope_scaling.empty(), config,
          fmt::format("rope_scaling \"{}\" is not implemented: positions are turned by rope_theta alone",
                      config.rope_scaling));
  require(config.rope_theta > 0, config,
          fmt::format("rope_theta is {}: it must be positive", config.rope_theta));
  require(config.heads % key_heads == 0, config,
          fmt::format("{} heads are not a multiple of {} heads of keys", config.heads, key_heads));
  require(depth > 0 && depth % 2 == 0, config,
          fmt::format("heads of width {}: rotary positions need an even one", depth));
  require(
      fills_alignment(config.heads * depth * width) && fills_alignment(key_heads * depth * width) &&
          fills_alignment(config.mlp_columns() * width),
      config,
      fmt::format("width {}, {} heads ({} of keys) of width {}, MLP of width {}: each projection must have a "
                  "multiple of {} elements",
                  width, config.heads, key_heads, depth, config.mlp_columns(), parameter_alignment_numel));
}

std::vector<UnitSpec> llama_units(const ModelConfig& config) {
  std::vector<UnitSpec> units;
  units.push_back(
      {"embedding", {matrix_parameter("model.embed_tokens.weight", config.vocabulary, config.width)}});
  for (int layer = 0; layer < config.layers; ++layer) units.push_back(block_spec(config, layer));
  UnitSpec head{"head", {vector_parameter("model.norm.weight", config.width, 1)}};
  if (!config.tied_embedding)
    head.parameters.push_back(matrix_parameter("lm_head.weight", config.vocabulary, config.width));
  units.push_back(std::move(head));
  return units;
}

}  // namespace headrace
