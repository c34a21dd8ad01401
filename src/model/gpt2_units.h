// The parameters of GPT-2, unit by unit: names and orientation of Hugging Face's GPT-2 (a Conv1D weight is in
// x out).
#pragma once

#include <vector>

#include "headrace/model.h"
#include "headrace/units.h"

namespace headrace {

// Parameters of each kind of unit in the order of its specification.
namespace gpt2_block_unit {
enum : std::size_t {
  ln_1_weight,
  ln_1_bias,
  c_attn_weight,
  c_attn_bias,
  attn_proj_weight,
  attn_proj_bias,
  ln_2_weight,
  ln_2_bias,
  c_fc_weight,
  c_fc_bias,
  mlp_proj_weight,
  mlp_proj_bias,
};
}
namespace gpt2_head_unit {
enum : std::size_t { ln_f_weight, ln_f_bias };
}

// Throws UsageError where the configuration or the data's shape is impossible.
void check_gpt2(const ModelConfig& config, const ModelOptions& options);
std::vector<UnitSpec> gpt2_units(const ModelConfig& config);

}  // namespace headrace
