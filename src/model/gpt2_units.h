// The parameters of GPT-2, unit by unit: names and orientation of Hugging Face's GPT-2 (a Conv1D weight is in
// x out), and where they lie in a gathered unit.
#pragma once

#include <vector>

#include "headrace/model.h"
#include "headrace/ops.h"
#include "headrace/units.h"

namespace headrace {

// Parameters of each kind of unit in the order of its specification.
namespace embedding_unit {
enum : std::size_t { wte, wpe };
}
namespace block_unit {
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
namespace head_unit {
enum : std::size_t { ln_f_weight, ln_f_bias, lm_head };
}

// Throws UsageError where the configuration or the data shape is impossible.
void check_gpt2(const ModelConfig& config, const ModelOptions& options);
std::vector<UnitSpec> gpt2_units(const ModelConfig& config);

// A unit's flat vector (parameters or gradient) in device memory.
struct FlatUnit {
  std::byte* base = nullptr;
  const UnitLayout* layout = nullptr;
  DType dtype = DType::f32;

  std::byte* at(std::size_t parameter) const;
  Matrix matrix_of(std::size_t parameter) const;
};

}  // namespace headrace
