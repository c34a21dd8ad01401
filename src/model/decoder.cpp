// The model: the order of units, hooks and memory of one micro-batch.
//
// [Note: acquires] With fused_head the head's forward and backward share one acquire, and the embedding's
// backward, which needs no weights, acquires nothing; without it every unit is acquired twice a micro-batch,
// which is what the closed form of DESIGN section 6 counts. A tied head acquires the embedding inside its own
// acquire.
//
// [Note: residual stream] Activations, the residual stream included, are of the options' dtype; statistics of
// norms, softmax and loss are fp32.
#include "src/model/decoder.h"

#include "headrace/errors.h"
#include "headrace/ops.h"
#include "src/model/decoder_head.h"
#include "src/model/stack_scope.h"

namespace headrace {
namespace {

// Parameters of the embedding.
constexpr std::size_t token_table = 0, position_table = 1;

// No rows where positions are not learned.
Matrix position_table_of(const FlatUnit& embedding) {
  return embedding.parameters() > position_table ? embedding.matrix_of(position_table) : Matrix{};
}

class Decoder final : public Model {
 public:
  Decoder(std::unique_ptr<DecoderFamily> family, const ModelConfig& config, const ModelOptions& options)
      : family_(std::move(family)), config_(config), options_(options) {}

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  std::vector<UnitSpec> unit_specs() const override { return family_->unit_specs(); }
  void bind(Context context) override;
  void forward_backward(const std::int32_t* tokens, float loss_scale, float* loss) override;
  void evaluate(const std::int32_t* tokens, float* loss) override;

 private:
  // The memory of one micro-batch that lives to its end.
  struct Batch {
    TokenBatch tokens;
    double* losses = nullptr;
    float* tied_gradient = nullptr;
    Matrix stream;  // gradient of the residual stream
  };
  // A block, its input, and the stack before both its output and what it kept of forward.
  struct KeptBlock {
    DeviceMemory::Mark before = 0;
    Matrix x;
    std::unique_ptr<DecoderBlock> block;
  };

  std::size_t head_index() const { return context_.units.size() - 1; }
  static std::size_t block_index(int layer) { return static_cast<std::size_t>(layer) + 1; }
  FlatUnit acquire(std::size_t unit) const {
    return {context_.hooks->acquire(context_.units[unit]), context_.layouts[unit], options_.dtype};
  }
  void release(std::size_t unit) const { context_.hooks->release(context_.units[unit]); }
  FlatUnit gradient_of(std::size_t unit) const {
    return {context_.hooks->gradient_buffer(context_.units[unit]), context_.layouts[unit], options_.dtype};
  }
  void gradients_ready(std::size_t unit) const { context_.hooks->gradients_ready(context_.units[unit]); }

  Batch push_batch(const std::int32_t* tokens, bool backward);
  Matrix embed(const Batch& batch);
  KeptBlock forward_block(int layer, const Matrix& x, Matrix& output);
  void backward_block(int layer, const KeptBlock& kept, const Matrix& stream);
  void run_head(const Batch& batch, const Matrix& x, bool forward, bool backward, float gradient_factor);
  void backward_embedding(const Batch& batch);

  std::unique_ptr<DecoderFamily> family_;
  ModelConfig config_;
  ModelOptions options_;
  BatchShape shape_{options_.batch, options_.sequence, config_.width, options_.dtype};
  Context context_;
};

void Decoder::bind(Context context) {
  const std::size_t units = static_cast<std::size_t>(config_.layers) + 2;
  HEADRACE_CHECK(context.units.size() == units && context.layouts.size() == units,
                 "bound to {} ids and {} layouts of {} units", context.units.size(), context.layouts.size(),
                 units);
  context_ = std::move(context);
}

Decoder::Batch Decoder::push_batch(const std::int32_t* tokens, bool backward) {
  DeviceMemory& memory = *context_.memory;
  const Bytes id_bytes =
      static_cast<Bytes>(options_.batch) * static_cast<Bytes>(options_.sequence + 1) * sizeof(std::int32_t);
  std::byte* ids = memory.push(MemoryTag::workspace, id_bytes);
  context_.device->copy(Lane::compute, ids, tokens, id_bytes);
  Batch batch;
  batch.tokens = {reinterpret_cast<const std::int32_t*>(ids), options_.batch, options_.sequence,
                  config_.vocabulary};
  batch.losses = reinterpret_cast<double*>(
      memory.push(MemoryTag::workspace, static_cast<Bytes>(shape_.rows()) * sizeof(double)));
  if (!backward) return batch;
  if (config_.tied_embedding)
    batch.tied_gradient = reinterpret_cast<float*>(memory.push(
        MemoryTag::gradients,
        static_cast<Bytes>(config_.vocabulary) * static_cast<Bytes>(config_.width) * sizeof(float)));
  batch.stream = push_activations(memory, shape_, shape_.width);
  return batch;
}

Matrix Decoder::embed(const Batch& batch) {
  const Matrix x = push_activations(*context_.memory, shape_, shape_.width);
  const FlatUnit weights = acquire(0);
  context_.ops->embedding(batch.tokens, weights.matrix_of(token_table), position_table_of(weights), x.data);
  release(0);
  return x;
}

Decoder::KeptBlock Decoder::forward_block(int layer, const Matrix& x, Matrix& output) {
  DeviceMemory& memory = *context_.memory;
  KeptBlock kept{.before = memory.mark(), .x = x, .block = family_->make_block(*context_.ops, memory)};
  output = push_activations(memory, shape_, shape_.width);
  const DeviceMemory::Mark after_output = memory.mark();
  kept.block->push_kept();
  const FlatUnit weights = acquire(block_index(layer));
  kept.block->forward(weights, x, output.data);
  release(block_index(layer));
  if (options_.recompute) memory.pop_to(after_output);
  return kept;
}

void Decoder::backward_block(int layer, const KeptBlock& kept, const Matrix& stream) {
  DeviceMemory& memory = *context_.memory;
  const FlatUnit weights = acquire(block_index(layer));
  if (options_.recompute) {
    memory.pop_to(kept.before);  // the output is no longer needed
    kept.block->push_kept();
    kept.block->forward(weights, kept.x, nullptr);
  }
  kept.block->backward(weights, gradient_of(block_index(layer)), kept.x, stream);
  release(block_index(layer));
  gradients_ready(block_index(layer));
  memory.pop_to(kept.before);
}

void Decoder::run_head(const Batch& batch, const Matrix& x, bool forward, bool backward,
                       float gradient_factor) {
  const FlatUnit weights = acquire(head_index());
  const Matrix table = config_.tied_embedding ? acquire(0).matrix_of(token_table)
                                              : weights.matrix_of(weights.parameters() - 1);
  HeadPass pass{.losses = forward ? batch.losses : nullptr, .gradient_factor = gradient_factor};
  FlatUnit gradient;
  if (backward) {
    gradient = gradient_of(head_index());
    pass.stream = &batch.stream;
    pass.gradient = &gradient;
    pass.tied_gradient = batch.tied_gradient;
  }
  DecoderHead(*family_, *context_.ops, *context_.memory, shape_).run(weights, table, batch.tokens, x, pass);
  if (config_.tied_embedding) release(0);
  release(head_index());
  if (backward) gradients_ready(head_index());
}

void Decoder::backward_embedding(const Batch& batch) {
  if (!options_.fused_head) acquire(0);
  const FlatUnit gradient = gradient_of(0);
  context_.ops->embedding_backward(batch.tokens, batch.stream.data, batch.tied_gradient,
                                   gradient.matrix_of(token_table), position_table_of(gradient));
  if (!options_.fused_head) release(0);
  gradients_ready(0);
}

void Decoder::forward_backward(const std::int32_t* tokens, float loss_scale, float* loss) {
  HEADRACE_CHECK(context_.ops != nullptr, "model {} is not bound", config_.name);
  const StackScope scope(*context_.memory);
  const Batch batch = push_batch(tokens, true);
  const float gradient_factor = loss_scale / static_cast<float>(shape_.rows());
  Matrix x = embed(batch);
  std::vector<KeptBlock> blocks;
  for (int layer = 0; layer < config_.layers; ++layer) {
    Matrix output;
    blocks.push_back(forward_block(layer, x, output));
    x = output;
  }
  if (options_.fused_head) {
    run_head(batch, x, true, true, gradient_factor);
  } else {
    run_head(batch, x, true, false, gradient_factor);
    run_head(batch, x, false, true, gradient_factor);
  }
  context_.ops->mean_loss(batch.losses, shape_.rows(), loss);
  for (int layer = config_.layers - 1; layer >= 0; --layer)
    backward_block(layer, blocks[static_cast<std::size_t>(layer)], batch.stream);
  backward_embedding(batch);
}

void Decoder::evaluate(const std::int32_t* tokens, float* loss) {
  HEADRACE_CHECK(context_.ops != nullptr, "model {} is not bound", config_.name);
  DeviceMemory& memory = *context_.memory;
  const StackScope scope(memory);
  const Batch batch = push_batch(tokens, false);
  const Matrix x = embed(batch);
  for (int layer = 0; layer < config_.layers; ++layer) {
    const StackScope block_scope(memory);
    const std::unique_ptr<DecoderBlock> block = family_->make_block(*context_.ops, memory);
    block->push_kept();
    const FlatUnit weights = acquire(block_index(layer));
    block->forward(weights, x, x.data);
    release(block_index(layer));
  }
  run_head(batch, x, true, false, 1.0f);
  context_.ops->mean_loss(batch.losses, shape_.rows(), loss);
}

}  // namespace

std::unique_ptr<Model> make_decoder(std::unique_ptr<DecoderFamily> family, const ModelConfig& config,
                                    const ModelOptions& options) {
  return std::make_unique<Decoder>(std::move(family), config, options);
}

}  // namespace headrace
