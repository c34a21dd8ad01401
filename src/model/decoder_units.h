// What the units of all decoders have in common: how their parameters are specified, and where they lie in a
// gathered unit. The first unit begins with the token table; an untied head ends with its own.
#pragma once

#include <string>

#include "headrace/model.h"
#include "headrace/ops.h"
#include "headrace/units.h"

namespace headrace {

inline constexpr float weight_std = 0.02f;

// rows x columns as named by Hugging Face; its elements are drawn from normal(0, std).
ParameterSpec matrix_parameter(std::string name, std::int64_t rows, std::int64_t columns,
                               float std = weight_std);
// A norm's scale or a bias: no weight decay, and `value` everywhere.
ParameterSpec vector_parameter(std::string name, std::int64_t numel, float value);

// Throws UsageError that names the model.
void require(bool holds, const ModelConfig& config, const std::string& what);
// What every family demands of its configuration and of the data's shape.
void check_decoder(const ModelConfig& config, const ModelOptions& options);

// A unit's flat vector (parameters or gradient) in device memory.
struct FlatUnit {
  std::byte* base = nullptr;
  const UnitLayout* layout = nullptr;
  DType dtype = DType::f32;

  std::byte* at(std::size_t parameter) const;
  Matrix matrix_of(std::size_t parameter) const;
  // Parameters first ... last, of as many columns each, one below the other: they must lie end to end.
  Matrix stacked(std::size_t first, std::size_t last) const;
  std::size_t parameters() const { return layout->spec.parameters.size(); }
};

}  // namespace headrace
