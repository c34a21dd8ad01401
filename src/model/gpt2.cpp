// The GPT-2 family: learned positions, layer norms, biases, GELU.
#include "src/model/decoder_family.h"
#include "src/model/gpt2_block.h"
#include "src/model/gpt2_units.h"

namespace headrace {
namespace {

using namespace gpt2_head_unit;

class Gpt2FinalNorm final : public FinalNorm {
 public:
  Gpt2FinalNorm(Ops& ops, DeviceMemory& memory, const Gpt2Shape& shape)
      : ops_(ops), memory_(memory), shape_(shape) {}

  void push_kept() override {
    mean_ = push_floats(memory_, shape_.batch.rows());
    rstd_ = push_floats(memory_, shape_.batch.rows());
  }
  void forward(const FlatUnit& weights, const Matrix& x, std::byte* y) override {
    ops_.layer_norm({.x = x,
                     .scale = weights.at(ln_f_weight),
                     .shift = weights.at(ln_f_bias),
                     .y = y,
                     .mean = mean_,
                     .rstd = rstd_,
                     .epsilon = shape_.norm_epsilon});
  }
  void backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x, const Matrix& dy,
                std::byte* dx) override {
    ops_.layer_norm_backward({.dy = dy,
                              .x = x.data,
                              .scale = weights.at(ln_f_weight),
                              .mean = mean_,
                              .rstd = rstd_,
                              .dx = dx,
                              .dscale = gradient.at(ln_f_weight),
                              .dshift = gradient.at(ln_f_bias)});
  }

 private:
  Ops& ops_;
  DeviceMemory& memory_;
  Gpt2Shape shape_;
  float *mean_ = nullptr, *rstd_ = nullptr;
};

class Gpt2Family final : public DecoderFamily {
 public:
  Gpt2Family(const ModelConfig& config, const ModelOptions& options)
      : config_(config),
        shape_{.batch = {options.batch, options.sequence, config.width, options.dtype},
               .attention = {options.batch, options.sequence, config.heads, config.width, options.dtype},
               .mlp_columns = config.mlp_columns(),
               .norm_epsilon = config.norm_epsilon} {
    check_gpt2(config, options);
  }
  std::vector<UnitSpec> unit_specs() const override { return gpt2_units(config_); }
  std::unique_ptr<DecoderBlock> make_block(Ops& ops, DeviceMemory& memory) const override {
    return std::make_unique<Gpt2Block>(ops, memory, shape_);
  }
  std::unique_ptr<FinalNorm> make_final_norm(Ops& ops, DeviceMemory& memory) const override {
    return std::make_unique<Gpt2FinalNorm>(ops, memory, shape_);
  }

 private:
  ModelConfig config_;
  Gpt2Shape shape_;
};

}  // namespace

std::unique_ptr<DecoderFamily> make_gpt2_family(const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<Gpt2Family>(config, options);
}

}  // namespace headrace
