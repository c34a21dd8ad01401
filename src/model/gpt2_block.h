// One transformer block of GPT-2: pre-norm attention and MLP around a residual stream.
#pragma once

#include "headrace/memory.h"
#include "headrace/ops.h"
#include "src/model/gpt2_units.h"

namespace headrace {

// The rows of a micro-batch.
struct BatchShape {
  std::int64_t batch = 0, sequence = 0, width = 0, heads = 0;
  DType dtype = DType::f32;

  std::int64_t rows() const { return batch * sequence; }
  AttentionShape attention() const { return {batch, sequence, heads, width, dtype}; }
};

// A rows x columns matrix of activations on the stack.
Matrix push_activations(DeviceMemory& memory, const BatchShape& shape, std::int64_t columns);
float* push_floats(DeviceMemory& memory, std::int64_t numel);

// What backward needs of forward. The MLP's GELU is computed again, and so are the attention probabilities.
struct BlockActivations {
  Matrix norm_1, qkv, attention, middle, norm_2,
      hidden;  // middle: residual stream after attention; hidden: before GELU
  float *mean_1 = nullptr, *rstd_1 = nullptr, *mean_2 = nullptr, *rstd_2 = nullptr, *log_sums = nullptr;

  static BlockActivations push(DeviceMemory& memory, const BatchShape& shape);
};

class Gpt2Block {
 public:
  Gpt2Block(Ops& ops, DeviceMemory& memory, const BatchShape& shape)
      : ops_(ops), memory_(memory), shape_(shape) {}

  // Fills `kept` from the block's input; with `output` (which may be x itself), the block's output too.
  void forward(const FlatUnit& weights, const Matrix& x, const BlockActivations& kept,
               std::byte* output) const;
  // `stream` holds the gradient of the output and becomes that of x. Writes every parameter's gradient.
  void backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                const BlockActivations& kept, const Matrix& stream) const;

 private:
  void backward_mlp(const FlatUnit& weights, const FlatUnit& gradient, const BlockActivations& kept,
                    const Matrix& stream) const;
  void backward_attention(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                          const BlockActivations& kept, const Matrix& stream) const;

  Ops& ops_;
  DeviceMemory& memory_;
  BatchShape shape_;
};

}  // namespace headrace
