// The parameters of Llama, unit by unit: names and orientation of Hugging Face's Llama (a Linear weight is
// out x in). Those of queries, keys and values, and those of gate and up, lie end to end, so that one product
// computes with them.
#pragma once

#include <vector>

#include "headrace/model.h"
#include "headrace/units.h"

namespace headrace {

// Parameters of each kind of unit in the order of its specification.
namespace llama_block_unit {
enum : std::size_t {
  input_norm,
  q_proj,
  k_proj,
  v_proj,
  o_proj,
  post_attention_norm,
  gate_proj,
  up_proj,
  down_proj,
};
}
namespace llama_head_unit {
enum : std::size_t { norm };
}

// Throws UsageError where the configuration or the data's shape is impossible.
void check_llama(const ModelConfig& config, const ModelOptions& options);
std::vector<UnitSpec> llama_units(const ModelConfig& config);

}  // namespace headrace
