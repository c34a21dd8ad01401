// The Llama family: rotary positions, RMS norms, SwiGLU, shared heads of keys, no biases.
#include "src/model/decoder_family.h"
#include "src/model/llama_block.h"
#include "src/model/llama_units.h"

namespace headrace {
namespace {

class LlamaFinalNorm final : public FinalNorm {
 public:
  LlamaFinalNorm(Ops& ops, DeviceMemory& memory, const LlamaShape& shape)
      : ops_(ops), memory_(memory), shape_(shape) {}

  void push_kept() override { rstd_ = push_floats(memory_, shape_.batch.rows()); }
  void forward(const FlatUnit& weights, const Matrix& x, std::byte* y) override {
    ops_.rms_norm({.x = x,
                   .scale = weights.at(llama_head_unit::norm),
                   .y = y,
                   .rstd = rstd_,
                   .epsilon = shape_.norm_epsilon});
  }
  void backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x, const Matrix& dy,
                std::byte* dx) override {
    ops_.rms_norm_backward({.dy = dy,
                            .x = x.data,
                            .scale = weights.at(llama_head_unit::norm),
                            .rstd = rstd_,
                            .dx = dx,
                            .dscale = gradient.at(llama_head_unit::norm)});
  }

 private:
  Ops& ops_;
  DeviceMemory& memory_;
  LlamaShape shape_;
  float* rstd_ = nullptr;
};

LlamaShape shape_of(const ModelConfig& config, const ModelOptions& options) {
  const BatchShape batch{options.batch, options.sequence, config.width, options.dtype};
  return {.batch = batch,
          .attention = {.batch = batch.batch,
                        .sequence = batch.sequence,
                        .heads = config.heads,
                        .width = std::int64_t{config.heads} * config.head_columns(),
                        .dtype = batch.dtype,
                        .key_heads = config.key_head_count()},
          .mlp_columns = config.mlp_columns(),
          .norm_epsilon = config.norm_epsilon,
          .rope_theta = config.rope_theta};
}

class LlamaFamily final : public DecoderFamily {
 public:
  LlamaFamily(const ModelConfig& config, const ModelOptions& options) : config_(config) {
    check_llama(config, options);
    shape_ = shape_of(config, options);
  }
  std::vector<UnitSpec> unit_specs() const override { return llama_units(config_); }
  std::unique_ptr<DecoderBlock> make_block(Ops& ops, DeviceMemory& memory) const override {
    return std::make_unique<LlamaBlock>(ops, memory, shape_);
  }
  std::unique_ptr<FinalNorm> make_final_norm(Ops& ops, DeviceMemory& memory) const override {
    return std::make_unique<LlamaFinalNorm>(ops, memory, shape_);
  }

 private:
  ModelConfig config_;
  LlamaShape shape_;
};

}  // namespace

std::unique_ptr<DecoderFamily> make_llama_family(const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<LlamaFamily>(config, options);
}

}  // namespace headrace
