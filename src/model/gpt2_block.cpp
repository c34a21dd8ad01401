#include "src/model/gpt2_block.h"

#include "src/model/gpt2_units.h"
#include "src/model/stack_scope.h"

namespace headrace {

using namespace gpt2_block_unit;

void Gpt2Block::push_kept() {
  const std::int64_t width = shape_.batch.width, rows = shape_.batch.rows();
  kept_ = {.norm_1 = push(width),
           .qkv = push(3 * width),
           .attention = push(width),
           .middle = push(width),
           .norm_2 = push(width),
           .hidden = push(shape_.mlp_columns),
           .mean_1 = push_floats(memory_, rows),
           .rstd_1 = push_floats(memory_, rows),
           .mean_2 = push_floats(memory_, rows),
           .rstd_2 = push_floats(memory_, rows),
           .log_sums = push_floats(memory_, rows * shape_.attention.heads)};
}

void Gpt2Block::forward(const FlatUnit& weights, const Matrix& x, std::byte* output,
                        const KeyValueCache* cache) {
  const StackScope scope(memory_);
  const Matrix branch = push(shape_.batch.width);
  ops_.layer_norm({.x = x,
                   .scale = weights.at(ln_1_weight),
                   .shift = weights.at(ln_1_bias),
                   .y = kept_.norm_1.data,
                   .mean = kept_.mean_1,
                   .rstd = kept_.rstd_1,
                   .epsilon = shape_.norm_epsilon});
  ops_.matmul(kept_.norm_1, weights.matrix_of(c_attn_weight), Transpose::none, weights.at(c_attn_bias),
              kept_.qkv);
  if (cache != nullptr)
    ops_.cached_attention(shape_.attention, kept_.qkv.data, *cache, kept_.attention.data);
  else
    ops_.attention(shape_.attention, kept_.qkv.data, kept_.attention.data, kept_.log_sums);
  ops_.matmul(kept_.attention, weights.matrix_of(attn_proj_weight), Transpose::none,
              weights.at(attn_proj_bias), branch);
  ops_.layer_norm({.x = x,
                   .delta = branch.data,
                   .sum = kept_.middle.data,
                   .scale = weights.at(ln_2_weight),
                   .shift = weights.at(ln_2_bias),
                   .y = kept_.norm_2.data,
                   .mean = kept_.mean_2,
                   .rstd = kept_.rstd_2,
                   .epsilon = shape_.norm_epsilon});
  ops_.matmul(kept_.norm_2, weights.matrix_of(c_fc_weight), Transpose::none, weights.at(c_fc_bias),
              kept_.hidden);
  if (output == nullptr) return;
  const Matrix active = push(shape_.mlp_columns);
  ops_.gelu(kept_.hidden, active.data);
  ops_.matmul(active, weights.matrix_of(mlp_proj_weight), Transpose::none, weights.at(mlp_proj_bias), branch);
  ops_.add(kept_.middle, branch.data, output);
}

void Gpt2Block::backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                         const Matrix& stream) {
  backward_mlp(weights, gradient, stream);
  backward_attention(weights, gradient, x, stream);
}

void Gpt2Block::backward_mlp(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& stream) const {
  const StackScope scope(memory_);
  const Matrix dhidden = push(shape_.mlp_columns);
  const Matrix active = push(shape_.mlp_columns);
  const Matrix dnorm = push(shape_.batch.width);
  ops_.matmul(stream, weights.matrix_of(mlp_proj_weight), Transpose::b, nullptr, dhidden);
  ops_.gelu_backward(kept_.hidden, dhidden.data, active.data);
  ops_.matmul(active, stream, Transpose::a, nullptr, gradient.matrix_of(mlp_proj_weight));
  ops_.column_sums(stream, gradient.at(mlp_proj_bias));

  ops_.matmul(kept_.norm_2, dhidden, Transpose::a, nullptr, gradient.matrix_of(c_fc_weight));
  ops_.column_sums(dhidden, gradient.at(c_fc_bias));
  ops_.matmul(dhidden, weights.matrix_of(c_fc_weight), Transpose::b, nullptr, dnorm);
  ops_.layer_norm_backward({.dy = dnorm,
                            .x = kept_.middle.data,
                            .scale = weights.at(ln_2_weight),
                            .mean = kept_.mean_2,
                            .rstd = kept_.rstd_2,
                            .dx = stream.data,
                            .add_to_dx = true,
                            .dscale = gradient.at(ln_2_weight),
                            .dshift = gradient.at(ln_2_bias)});
}

void Gpt2Block::backward_attention(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                                   const Matrix& stream) const {
  const StackScope scope(memory_);
  const Matrix dattention = push(shape_.batch.width);
  const Matrix dqkv = push(3 * shape_.batch.width);
  ops_.matmul(stream, weights.matrix_of(attn_proj_weight), Transpose::b, nullptr, dattention);
  ops_.matmul(kept_.attention, stream, Transpose::a, nullptr, gradient.matrix_of(attn_proj_weight));
  ops_.column_sums(stream, gradient.at(attn_proj_bias));
  ops_.attention_backward(shape_.attention, kept_.qkv.data, kept_.attention.data, dattention.data,
                          kept_.log_sums, dqkv.data);

  ops_.matmul(kept_.norm_1, dqkv, Transpose::a, nullptr, gradient.matrix_of(c_attn_weight));
  ops_.column_sums(dqkv, gradient.at(c_attn_bias));
  const Matrix& dnorm = dattention;  // no longer needed
  ops_.matmul(dqkv, weights.matrix_of(c_attn_weight), Transpose::b, nullptr, dnorm);
  ops_.layer_norm_backward({.dy = dnorm,
                            .x = x.data,
                            .scale = weights.at(ln_1_weight),
                            .mean = kept_.mean_1,
                            .rstd = kept_.rstd_1,
                            .dx = stream.data,
                            .add_to_dx = true,
                            .dscale = gradient.at(ln_1_weight),
                            .dshift = gradient.at(ln_1_bias)});
}

}  // namespace headrace
