#include "src/model/gpt2_units.h"

#include <cmath>

#include "headrace/errors.h"
#include "src/model/decoder_units.h"

namespace headrace {
namespace {

UnitSpec block_spec(const ModelConfig& config, int layer) {
  const std::int64_t c = config.width, mlp = config.mlp_columns();
  const float residual_std = weight_std / std::sqrt(2.0f * static_cast<float>(config.layers));
  const std::string unit = fmt::format("h.{}", layer);
  const auto name = [&unit](const char* parameter) { return unit + "." + parameter; };
  return {unit,
          {vector_parameter(name("ln_1.weight"), c, 1), vector_parameter(name("ln_1.bias"), c, 0),
           matrix_parameter(name("attn.c_attn.weight"), c, 3 * c),
           vector_parameter(name("attn.c_attn.bias"), 3 * c, 0),
           matrix_parameter(name("attn.c_proj.weight"), c, c, residual_std),
           vector_parameter(name("attn.c_proj.bias"), c, 0), vector_parameter(name("ln_2.weight"), c, 1),
           vector_parameter(name("ln_2.bias"), c, 0), matrix_parameter(name("mlp.c_fc.weight"), c, mlp),
           vector_parameter(name("mlp.c_fc.bias"), mlp, 0),
           matrix_parameter(name("mlp.c_proj.weight"), mlp, c, residual_std),
           vector_parameter(name("mlp.c_proj.bias"), c, 0)}};
}

}  // namespace

void check_gpt2(const ModelConfig& config, const ModelOptions& options) {
  check_decoder(config, options);
  require(config.key_head_count() == config.heads && config.head_columns() * config.heads == config.width,
          config, "GPT-2 has as many heads of keys as of queries, which share its width");
}

std::vector<UnitSpec> gpt2_units(const ModelConfig& config) {
  std::vector<UnitSpec> units;
  units.push_back({"embedding",
                   {matrix_parameter("wte.weight", config.vocabulary, config.width),
                    matrix_parameter("wpe.weight", config.max_positions, config.width)}});
  for (int layer = 0; layer < config.layers; ++layer) units.push_back(block_spec(config, layer));
  UnitSpec head{
      "head",
      {vector_parameter("ln_f.weight", config.width, 1), vector_parameter("ln_f.bias", config.width, 0)}};
  if (!config.tied_embedding)
    head.parameters.push_back(matrix_parameter("lm_head.weight", config.vocabulary, config.width));
  units.push_back(std::move(head));
  return units;
}

}  // namespace headrace
