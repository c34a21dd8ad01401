// Updates that every device refuses at the call: states that are not those of the arguments, or have no
// meaning.
#pragma once

#include <utility>
#include <vector>

#include "headrace/optimizer_update.h"

namespace headrace::test {

inline std::vector<std::pair<UpdateSpan, OptimizerArguments>> refused_updates() {
  UpdateSpan within_a_quantisation_block;
  within_a_quantisation_block.format.moments = MomentDType::int8;
  within_a_quantisation_block.first_element = 7;
  UpdateSpan fp16_master;
  fp16_master.format.master = MasterDType::none;
  fp16_master.parameter_dtype = DType::f16;
  return {
      {{}, {.kind = OptimizerKind::lion}}, {{}, {.amsgrad = true}}, {{}, {.beta1 = 1.0}}, {{}, {.step = 0}},
      {within_a_quantisation_block, {}},   {fp16_master, {}}};
}

}  // namespace headrace::test
