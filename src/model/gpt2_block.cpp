#include "src/model/gpt2_block.h"

#include "src/model/stack_scope.h"

namespace headrace {

using namespace block_unit;

Matrix push_activations(DeviceMemory& memory, const BatchShape& shape, std::int64_t columns) {
  const Bytes bytes = static_cast<Bytes>(shape.rows() * columns) * size_of(shape.dtype);
  return matrix(memory.push(MemoryTag::activations, bytes), shape.dtype, shape.rows(), columns);
}

float* push_floats(DeviceMemory& memory, std::int64_t numel) {
  return reinterpret_cast<float*>(
      memory.push(MemoryTag::activations, static_cast<Bytes>(numel) * sizeof(float)));
}

BlockActivations BlockActivations::push(DeviceMemory& memory, const BatchShape& shape) {
  const std::int64_t width = shape.width, rows = shape.rows();
  return {.norm_1 = push_activations(memory, shape, width),
          .qkv = push_activations(memory, shape, 3 * width),
          .attention = push_activations(memory, shape, width),
          .middle = push_activations(memory, shape, width),
          .norm_2 = push_activations(memory, shape, width),
          .hidden = push_activations(memory, shape, 4 * width),
          .mean_1 = push_floats(memory, rows),
          .rstd_1 = push_floats(memory, rows),
          .mean_2 = push_floats(memory, rows),
          .rstd_2 = push_floats(memory, rows),
          .log_sums = push_floats(memory, rows * shape.heads)};
}

void Gpt2Block::forward(const FlatUnit& weights, const Matrix& x, const BlockActivations& kept,
                        std::byte* output) const {
  const StackScope scope(memory_);
  const Matrix branch = push_activations(memory_, shape_, shape_.width);
  ops_.layer_norm({.x = x,
                   .scale = weights.at(ln_1_weight),
                   .shift = weights.at(ln_1_bias),
                   .y = kept.norm_1.data,
                   .mean = kept.mean_1,
                   .rstd = kept.rstd_1});
  ops_.matmul(kept.norm_1, weights.matrix_of(c_attn_weight), Transpose::none, weights.at(c_attn_bias),
              kept.qkv);
  ops_.attention(shape_.attention(), kept.qkv.data, kept.attention.data, kept.log_sums);
  ops_.matmul(kept.attention, weights.matrix_of(attn_proj_weight), Transpose::none,
              weights.at(attn_proj_bias), branch);
  ops_.layer_norm({.x = x,
                   .delta = branch.data,
                   .sum = kept.middle.data,
                   .scale = weights.at(ln_2_weight),
                   .shift = weights.at(ln_2_bias),
                   .y = kept.norm_2.data,
                   .mean = kept.mean_2,
                   .rstd = kept.rstd_2});
  ops_.matmul(kept.norm_2, weights.matrix_of(c_fc_weight), Transpose::none, weights.at(c_fc_bias),
              kept.hidden);
  if (output == nullptr) return;
  const Matrix active = push_activations(memory_, shape_, 4 * shape_.width);
  ops_.gelu(kept.hidden, active.data);
  ops_.matmul(active, weights.matrix_of(mlp_proj_weight), Transpose::none, weights.at(mlp_proj_bias), branch);
  ops_.add(kept.middle, branch.data, output);
}

void Gpt2Block::backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                         const BlockActivations& kept, const Matrix& stream) const {
  backward_mlp(weights, gradient, kept, stream);
  backward_attention(weights, gradient, x, kept, stream);
}

void Gpt2Block::backward_mlp(const FlatUnit& weights, const FlatUnit& gradient, const BlockActivations& kept,
                             const Matrix& stream) const {
  const StackScope scope(memory_);
  const Matrix dhidden = push_activations(memory_, shape_, 4 * shape_.width);
  const Matrix active = push_activations(memory_, shape_, 4 * shape_.width);
  const Matrix dnorm = push_activations(memory_, shape_, shape_.width);
  ops_.matmul(stream, weights.matrix_of(mlp_proj_weight), Transpose::b, nullptr, dhidden);
  ops_.gelu_backward(kept.hidden, dhidden.data, active.data);
  ops_.matmul(active, stream, Transpose::a, nullptr, gradient.matrix_of(mlp_proj_weight));
  ops_.column_sums(stream, gradient.at(mlp_proj_bias));

  ops_.matmul(kept.norm_2, dhidden, Transpose::a, nullptr, gradient.matrix_of(c_fc_weight));
  ops_.column_sums(dhidden, gradient.at(c_fc_bias));
  ops_.matmul(dhidden, weights.matrix_of(c_fc_weight), Transpose::b, nullptr, dnorm);
  ops_.layer_norm_backward({.dy = dnorm,
                            .x = kept.middle.data,
                            .scale = weights.at(ln_2_weight),
                            .mean = kept.mean_2,
                            .rstd = kept.rstd_2,
                            .dx = stream.data,
                            .add_to_dx = true,
                            .dscale = gradient.at(ln_2_weight),
                            .dshift = gradient.at(ln_2_bias)});
}

void Gpt2Block::backward_attention(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                                   const BlockActivations& kept, const Matrix& stream) const {
  const StackScope scope(memory_);
  const Matrix dattention = push_activations(memory_, shape_, shape_.width);
  const Matrix dqkv = push_activations(memory_, shape_, 3 * shape_.width);
  ops_.matmul(stream, weights.matrix_of(attn_proj_weight), Transpose::b, nullptr, dattention);
  ops_.matmul(kept.attention, stream, Transpose::a, nullptr, gradient.matrix_of(attn_proj_weight));
  ops_.column_sums(stream, gradient.at(attn_proj_bias));
  ops_.attention_backward(shape_.attention(), kept.qkv.data, kept.attention.data, dattention.data,
                          kept.log_sums, dqkv.data);

  ops_.matmul(kept.norm_1, dqkv, Transpose::a, nullptr, gradient.matrix_of(c_attn_weight));
  ops_.column_sums(dqkv, gradient.at(c_attn_bias));
  const Matrix& dnorm = dattention;  // no longer needed
  ops_.matmul(dqkv, weights.matrix_of(c_attn_weight), Transpose::b, nullptr, dnorm);
  ops_.layer_norm_backward({.dy = dnorm,
                            .x = x.data,
                            .scale = weights.at(ln_1_weight),
                            .mean = kept.mean_1,
                            .rstd = kept.rstd_1,
                            .dx = stream.data,
                            .add_to_dx = true,
                            .dscale = gradient.at(ln_1_weight),
                            .dshift = gradient.at(ln_1_bias)});
}

}  // namespace headrace
