// The native models: decoders of the GPT-2 and Llama families, driven through ModuleHooks on one device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/device.h"
#include "headrace/dtype.h"
#include "headrace/memory.h"
#include "headrace/ops.h"
#include "headrace/units.h"

namespace headrace {

enum class ModelFamily : std::uint8_t { gpt2, llama };

// What a config.json of Hugging Face says. A 0 stands for what the accessor below it says.
struct ModelConfig {
  std::string name;
  ModelFamily family = ModelFamily::gpt2;
  int layers = 0, width = 0, heads = 0;
  int vocabulary = 256;
  int max_positions = 1024;
  bool tied_embedding = true;
  int mlp_width = 0;  // intermediate_size, n_inner
  float norm_epsilon = 1e-5f;
  // Of Llama alone.
  int key_heads = 0;   // num_key_value_heads: each is shared by heads / key_heads neighbouring query heads
  int head_width = 0;  // head_dim
  float rope_theta = 10000.0f;
  std::string rope_scaling = {};  // its type; no type is implemented, and one that is asked for is refused

  std::vector<std::int32_t> end_tokens = {};  // eos_token_id: any of them ends a text

  int mlp_columns() const { return mlp_width > 0 ? mlp_width : 4 * width; }
  int key_head_count() const { return key_heads > 0 ? key_heads : heads; }
  int head_columns() const { return head_width > 0 ? head_width : width / heads; }
};
// "gpt2-124m", "llama-1b" ...; UsageError with the nearest name otherwise.
ModelConfig model_preset(const std::string& name);
std::vector<std::string> model_preset_names();

struct ModelOptions {
  DType dtype = DType::bf16;
  int batch = 1, sequence = 256;
  bool recompute =
      false;  // activation checkpointing: keep only each block's input, run its forward again in backward
  bool fused_head =
      true;  // one acquire of the head for its forward and backward; false: one each, logits computed twice
};

// Its units in order: embedding, one a layer, head.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const ModelOptions& options() const = 0;
  // The units in execution order; the caller registers them and hands the ids back through bind().
  virtual std::vector<UnitSpec> unit_specs() const = 0;

  // Everything the model computes with. Ids are those of unit_specs(), in order.
  struct Context {
    Device* device = nullptr;
    DeviceMemory* memory = nullptr;
    ModuleHooks* hooks = nullptr;
    Ops* ops = nullptr;
    std::vector<UnitId> units;
    std::vector<const UnitLayout*> layouts;
  };
  virtual void bind(Context context) = 0;

  // Enqueues forward and backward of one micro-batch. `tokens` is batch x (sequence + 1) ids in host memory
  // (input and shifted target), valid until the compute lane passed. The mean loss arrives in *loss (host)
  // when the compute lane passed. `loss_scale` multiplies the gradient. Nothing blocks except acquire.
  virtual void forward_backward(const std::int32_t* tokens, float loss_scale, float* loss) = 0;
  // Forward only: the mean loss.
  virtual void evaluate(const std::int32_t* tokens, float* loss) = 0;
};
// Throws UsageError where the configuration or the data's shape is impossible.
std::unique_ptr<Model> make_model(const ModelConfig& config, const ModelOptions& options);

// Peak device bytes per tag of one forward_backward with operations of `make_ops`, found by running it on a
// device that executes nothing. `compute_threads` is the device's (on the CPU, scratch memory is one a
// thread); 0: cpu_threads().
TagBytes measure_model_memory(const ModelConfig& config, const ModelOptions& options,
                              const OpsFactory& make_ops, int compute_threads = 0);
// The sequence of hook calls of one forward_backward (the same way): what the planner counts.
std::vector<HookCall> record_hook_calls(const ModelConfig& config, const ModelOptions& options);

}  // namespace headrace
