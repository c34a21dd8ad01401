// The head of a decoder: final norm, logits, loss. Logits exist for a bounded number of rows at a time.
#pragma once

#include "src/model/decoder_family.h"

namespace headrace {

// What a pass over the head computes.
struct HeadPass {
  double* losses = nullptr;            // one a row; null: not wanted
  const Matrix* stream = nullptr;      // receives the gradient of the head's input; null: forward only
  const FlatUnit* gradient = nullptr;  // of the head unit, with `stream`
  float* tied_gradient = nullptr;      // receives the token table's gradient (fp32) when the table is tied
  float gradient_factor = 1.0f;
};

class DecoderHead {
 public:
  DecoderHead(const DecoderFamily& family, Ops& ops, DeviceMemory& memory, const BatchShape& shape)
      : family_(family), ops_(ops), memory_(memory), shape_(shape) {}

  // `table`: the token table (tied) or the head's own, its last parameter; vocabulary x width.
  void run(const FlatUnit& weights, const Matrix& table, const TokenBatch& tokens, const Matrix& x,
           const HeadPass& pass) const;

 private:
  struct Rows {
    Matrix normal, dnormal;
    float* table_gradient = nullptr;
  };
  void run_rows(const Matrix& table, const TokenBatch& tokens, const HeadPass& pass, const Rows& all,
                std::int64_t first, std::int64_t count) const;

  const DecoderFamily& family_;
  Ops& ops_;
  DeviceMemory& memory_;
  BatchShape shape_;
};

}  // namespace headrace
