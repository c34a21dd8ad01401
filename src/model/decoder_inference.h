// Inference of the decoders of all families: the loop over units without what backward needs.
#pragma once

#include <memory>
#include <vector>

#include "headrace/inference.h"
#include "src/model/decoder_family.h"

namespace headrace {

class DecoderInference final : public Inference {
 public:
  DecoderInference(const ModelConfig& config, const InferenceOptions& options);
  std::vector<UnitSpec> unit_specs() const override { return family_->unit_specs(); }
  void bind(Model::Context context) override;
  int used_positions() const override { return used_; }
  void append(std::span<const std::int32_t> tokens, Logits which, const Visit& visit) override;

  // As if the cache held so many positions: for measuring.
  void pretend_used(int positions) { used_ = positions; }

 private:
  FlatUnit acquire(std::size_t unit) const {
    return {context_.hooks->acquire(context_.units[unit]), context_.layouts[unit], options_.dtype};
  }
  void release(std::size_t unit) const { context_.hooks->release(context_.units[unit]); }
  BatchShape shape_of(int tokens) const { return {options_.batch, tokens, config_.width, options_.dtype}; }

  void prepare(int tokens);
  void run_pass(std::span<const std::int32_t> tokens, int first, int count, Logits which, const Visit& visit);
  Matrix embed(std::span<const std::int32_t> tokens, int first, int count);
  void run_block(int layer, const Matrix& x);
  Matrix last_rows(const Matrix& x) const;
  void run_head(const Matrix& rows, int first_position, const Visit& visit);

  ModelConfig config_;
  InferenceOptions options_;
  std::unique_ptr<DecoderFamily> family_;  // of passes of family_tokens_ tokens
  int family_tokens_ = 0;
  Model::Context context_;
  std::vector<std::byte*> caches_;  // of each layer
  int used_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
};

}  // namespace headrace
