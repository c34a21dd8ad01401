// Units and the module hooks: what a model says to the engine. A unit is the set of parameters gathered and
// released together; its parameters lie end to end in one flat vector, each start aligned to 64 elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/dtype.h"

namespace headrace {

using UnitId = std::uint32_t;

inline constexpr std::uint64_t parameter_alignment_numel = 64;

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // a dimension of 0 is allowed
  bool weight_decay = true;         // whether its group's decay applies, unless the group says so for all
  float initial_std = 0.0f;         // normal(initial_mean, initial_std); 0: constant initial_mean
  float initial_mean = 0.0f;
  std::uint32_t group = 0;  // of EngineOptions::groups; 0 is that of all who name none
  std::uint64_t numel() const;
};

struct UnitSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
};

// Where a unit's parameters lie in its flat vector. numel ends with the last parameter: no tail padding.
struct UnitLayout {
  UnitSpec spec;
  std::vector<std::uint64_t> offsets;  // elements, one a parameter
  std::uint64_t numel = 0;             // of the flat vector, alignment gaps included
  std::uint64_t parameters_numel = 0;  // without gaps
};
UnitLayout make_unit_layout(UnitSpec spec);

// The calls that a module makes, in this order per micro-batch: acquire -> compute -> release forward, the
// same backward, and gradients_ready once a unit's flat gradient is complete. All addresses are device
// memory, valid for work enqueued on the compute lane between the two calls of a pair. acquire may be nested
// (a tied weight has several users). The engine implements it; the planner implements it without memory, to
// count bytes and calls.
class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  virtual std::byte* acquire(UnitId unit) = 0;
  virtual void release(UnitId unit) = 0;
  // The unit's flat gradient, of the gradient's wire dtype, gaps zeroed; every parameter's range must be
  // written once.
  virtual std::byte* gradient_buffer(UnitId unit) = 0;
  virtual void gradients_ready(UnitId unit) = 0;
};

// One such call, of the unit_index-th unit: a recorded sequence of them is what the planner counts.
struct HookCall {
  enum class Kind : std::uint8_t { acquire, release, gradient_buffer, gradients_ready } kind;
  std::uint32_t unit_index;
};

}  // namespace headrace
