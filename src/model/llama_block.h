// One transformer block of Llama: pre-norm attention with rotary positions and shared heads of keys, and a
// gated MLP, around a residual stream. No biases.
#pragma once

#include "src/model/decoder_family.h"

namespace headrace {

struct LlamaShape {
  BatchShape batch;
  AttentionShape attention;
  std::int64_t mlp_columns = 0;
  float norm_epsilon = 0, rope_theta = 0;
};

class LlamaBlock final : public DecoderBlock {
 public:
  LlamaBlock(Ops& ops, DeviceMemory& memory, const LlamaShape& shape)
      : ops_(ops), memory_(memory), shape_(shape) {}

  void push_kept() override;
  void forward(const FlatUnit& weights, const Matrix& x, std::byte* output,
               const KeyValueCache* cache) override;
  void backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                const Matrix& stream) override;

 private:
  // The MLP's product of gate and up is computed again, and so are the attention probabilities.
  struct Kept {
    Matrix norm_1, qkv, attention, middle, norm_2,
        hidden;  // qkv: turned; middle: residual stream after attention; hidden: gate and up
    float *rstd_1 = nullptr, *rstd_2 = nullptr, *log_sums = nullptr;
  };
  void backward_mlp(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& stream) const;
  void backward_attention(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                          const Matrix& stream) const;
  Matrix push(std::int64_t columns) const { return push_activations(memory_, shape_.batch, columns); }

  Ops& ops_;
  DeviceMemory& memory_;
  LlamaShape shape_;
  Kept kept_;
};

}  // namespace headrace
