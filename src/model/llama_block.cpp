#include "src/model/llama_block.h"

#include "src/model/llama_units.h"
#include "src/model/stack_scope.h"

namespace headrace {

using namespace llama_block_unit;

void LlamaBlock::push_kept() {
  const std::int64_t width = shape_.batch.width, rows = shape_.batch.rows();
  kept_ = {.norm_1 = push(width),
           .qkv = push(shape_.attention.qkv_width()),
           .attention = push(shape_.attention.width),
           .middle = push(width),
           .norm_2 = push(width),
           .hidden = push(2 * shape_.mlp_columns),
           .rstd_1 = push_floats(memory_, rows),
           .rstd_2 = push_floats(memory_, rows),
           .log_sums = push_floats(memory_, rows * shape_.attention.heads)};
}

void LlamaBlock::forward(const FlatUnit& weights, const Matrix& x, std::byte* output,
                         const KeyValueCache* cache) {
  const StackScope scope(memory_);
  const Matrix branch = push(shape_.batch.width);
  ops_.rms_norm({.x = x,
                 .scale = weights.at(input_norm),
                 .y = kept_.norm_1.data,
                 .rstd = kept_.rstd_1,
                 .epsilon = shape_.norm_epsilon});
  ops_.matmul(kept_.norm_1, weights.stacked(q_proj, v_proj), Transpose::b, nullptr, kept_.qkv);
  ops_.rotary(shape_.attention, shape_.rope_theta, kept_.qkv.data, cache != nullptr ? cache->used : 0);
  if (cache != nullptr)
    ops_.cached_attention(shape_.attention, kept_.qkv.data, *cache, kept_.attention.data);
  else
    ops_.attention(shape_.attention, kept_.qkv.data, kept_.attention.data, kept_.log_sums);
  ops_.matmul(kept_.attention, weights.matrix_of(o_proj), Transpose::b, nullptr, branch);
  ops_.rms_norm({.x = x,
                 .delta = branch.data,
                 .sum = kept_.middle.data,
                 .scale = weights.at(post_attention_norm),
                 .y = kept_.norm_2.data,
                 .rstd = kept_.rstd_2,
                 .epsilon = shape_.norm_epsilon});
  ops_.matmul(kept_.norm_2, weights.stacked(gate_proj, up_proj), Transpose::b, nullptr, kept_.hidden);
  if (output == nullptr) return;
  const Matrix active = push(shape_.mlp_columns);
  ops_.swiglu(kept_.hidden, active.data);
  ops_.matmul(active, weights.matrix_of(down_proj), Transpose::b, nullptr, branch);
  ops_.add(kept_.middle, branch.data, output);
}

void LlamaBlock::backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                          const Matrix& stream) {
  backward_mlp(weights, gradient, stream);
  backward_attention(weights, gradient, x, stream);
}

// What was kept turns into its own gradient where nothing else needs it any more.
void LlamaBlock::backward_mlp(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& stream) const {
  const StackScope scope(memory_);
  const Matrix active = push(shape_.mlp_columns);
  ops_.matmul(stream, weights.matrix_of(down_proj), Transpose::none, nullptr, active);
  ops_.swiglu_backward(kept_.hidden, active.data);
  ops_.matmul(stream, active, Transpose::a, nullptr, gradient.matrix_of(down_proj));

  const Matrix &dhidden = kept_.hidden, &dnorm = kept_.norm_2;
  ops_.matmul(dhidden, kept_.norm_2, Transpose::a, nullptr, gradient.stacked(gate_proj, up_proj));
  ops_.matmul(dhidden, weights.stacked(gate_proj, up_proj), Transpose::none, nullptr, dnorm);
  ops_.rms_norm_backward({.dy = dnorm,
                          .x = kept_.middle.data,
                          .scale = weights.at(post_attention_norm),
                          .rstd = kept_.rstd_2,
                          .dx = stream.data,
                          .add_to_dx = true,
                          .dscale = gradient.at(post_attention_norm)});
}

void LlamaBlock::backward_attention(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                                    const Matrix& stream) const {
  const StackScope scope(memory_);
  const Matrix dattention = push(shape_.attention.width);
  const Matrix dqkv = push(shape_.attention.qkv_width());
  ops_.matmul(stream, weights.matrix_of(o_proj), Transpose::none, nullptr, dattention);
  ops_.matmul(stream, kept_.attention, Transpose::a, nullptr, gradient.matrix_of(o_proj));
  ops_.attention_backward(shape_.attention, kept_.qkv.data, kept_.attention.data, dattention.data,
                          kept_.log_sums, dqkv.data);
  ops_.rotary_backward(shape_.attention, shape_.rope_theta, dqkv.data);

  const Matrix& dnorm = kept_.norm_1;
  ops_.matmul(dqkv, kept_.norm_1, Transpose::a, nullptr, gradient.stacked(q_proj, v_proj));
  ops_.matmul(dqkv, weights.stacked(q_proj, v_proj), Transpose::none, nullptr, dnorm);
  ops_.rms_norm_backward({.dy = dnorm,
                          .x = x.data,
                          .scale = weights.at(input_norm),
                          .rstd = kept_.rstd_1,
                          .dx = stream.data,
                          .add_to_dx = true,
                          .dscale = gradient.at(input_norm)});
}

}  // namespace headrace
