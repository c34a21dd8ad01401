// One transformer block of GPT-2: pre-norm attention and MLP around a residual stream.
#pragma once

#include "src/model/decoder_family.h"

namespace headrace {

struct Gpt2Shape {
  BatchShape batch;
  AttentionShape attention;
  std::int64_t mlp_columns = 0;
  float norm_epsilon = 0;
};

class Gpt2Block final : public DecoderBlock {
 public:
  Gpt2Block(Ops& ops, DeviceMemory& memory, const Gpt2Shape& shape)
      : ops_(ops), memory_(memory), shape_(shape) {}

  void push_kept() override;
  void forward(const FlatUnit& weights, const Matrix& x, std::byte* output,
               const KeyValueCache* cache) override;
  void backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                const Matrix& stream) override;

 private:
  // The MLP's GELU is computed again, and so are the attention probabilities.
  struct Kept {
    Matrix norm_1, qkv, attention, middle, norm_2,
        hidden;  // middle: residual stream after attention; hidden: before GELU
    float *mean_1 = nullptr, *rstd_1 = nullptr, *mean_2 = nullptr, *rstd_2 = nullptr, *log_sums = nullptr;
  };
  void backward_mlp(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& stream) const;
  void backward_attention(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                          const Matrix& stream) const;
  Matrix push(std::int64_t columns) const { return push_activations(memory_, shape_.batch, columns); }

  Ops& ops_;
  DeviceMemory& memory_;
  Gpt2Shape shape_;
  Kept kept_;
};

}  // namespace headrace
