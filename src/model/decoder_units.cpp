#include "src/model/decoder_units.h"

#include <limits>

#include "headrace/errors.h"

namespace headrace {

ParameterSpec matrix_parameter(std::string name, std::int64_t rows, std::int64_t columns, float std) {
  return {.name = std::move(name), .shape = {rows, columns}, .weight_decay = true, .initial_std = std};
}

ParameterSpec vector_parameter(std::string name, std::int64_t numel, float value) {
  return {.name = std::move(name), .shape = {numel}, .weight_decay = false, .initial_mean = value};
}

void require(bool holds, const ModelConfig& config, const std::string& what) {
  if (!holds) throw UsageError(fmt::format("model {}: {}", config.name, what));
}

void check_decoder(const ModelConfig& config, const ModelOptions& options) {
  require(config.layers >= 0 && config.width > 0 && config.heads > 0 && config.vocabulary > 0 &&
              config.max_positions > 0,
          config,
          fmt::format("{} layers, width {}, {} heads, vocabulary {}, {} positions: each must be positive",
                      config.layers, config.width, config.heads, config.vocabulary, config.max_positions));
  require(config.mlp_width >= 0 && config.key_heads >= 0 && config.head_width >= 0, config,
          fmt::format("MLP of width {}, {} heads of keys, heads of width {}: none may be negative",
                      config.mlp_width, config.key_heads, config.head_width));
  require(config.head_width > 0 || config.width % config.heads == 0, config,
          fmt::format("width {} is not a multiple of {} heads", config.width, config.heads));
  require(std::int64_t{config.heads} * config.head_columns() <= std::numeric_limits<std::int32_t>::max(),
          config, fmt::format("{} heads of width {} are too wide", config.heads, config.head_columns()));
  require(config.norm_epsilon > 0, config,
          fmt::format("the norms' epsilon is {}: it must be positive", config.norm_epsilon));
  require(options.batch > 0 && options.sequence > 0, config,
          fmt::format("{} sequences of {} tokens: each must be positive", options.batch, options.sequence));
  require(
      options.sequence <= config.max_positions, config,
      fmt::format("a sequence of {} tokens is longer than its {} positions: use --sequence-length {} or less",
                  options.sequence, config.max_positions, config.max_positions));
  require(std::int64_t{options.batch} * options.sequence <= std::numeric_limits<std::int32_t>::max(), config,
          fmt::format("{} sequences of {} tokens are too many for one micro-batch: use accumulation",
                      options.batch, options.sequence));
}

std::byte* FlatUnit::at(std::size_t parameter) const {
  return base + layout->offsets.at(parameter) * size_of(dtype);
}

Matrix FlatUnit::matrix_of(std::size_t parameter) const {
  const std::vector<std::int64_t>& shape = layout->spec.parameters.at(parameter).shape;
  return matrix(at(parameter), dtype, shape.at(0), shape.at(1));
}

Matrix FlatUnit::stacked(std::size_t first, std::size_t last) const {
  Matrix all = matrix_of(first);
  for (std::size_t parameter = first + 1; parameter <= last; ++parameter) {
    const Matrix next = matrix_of(parameter);
    const std::byte* end = all.data + static_cast<Bytes>(all.rows * all.columns) * size_of(dtype);
    HEADRACE_CHECK(next.columns == all.columns && next.data == end, "{} does not follow {}",
                   layout->spec.parameters[parameter].name, layout->spec.parameters[first].name);
    all.rows += next.rows;
  }
  return all;
}

}  // namespace headrace
