// Logits of the native models, token by token: keys and values of all tokens so far stay in device memory, so
// that each further one costs one row.
//
// Threads: one owner thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "headrace/model.h"

namespace headrace {

struct InferenceOptions {
  DType dtype = DType::f32;
  int batch = 1;             // sequences of one length that grow side by side
  int positions = 256;       // of each, at most: what the cache has room for
  int tokens_at_once = 256;  // of each, in one pass; more are taken in several: bounds the activations
};

class Inference {
 public:
  // After which tokens of a call logits are wanted.
  enum class Logits : std::uint8_t { none, last, all };
  // Those of the token behind `position` of a sequence. `logits` is valid during the call.
  using Visit = std::function<void(int sequence, int position, std::span<const float> logits)>;

  virtual ~Inference() = default;
  virtual std::vector<UnitSpec> unit_specs() const = 0;
  // As Model::bind. Takes the cache from the persistent memory; asks for no gradients.
  virtual void bind(Model::Context context) = 0;
  virtual int used_positions() const = 0;
  // Puts tokens (batch x as many of each sequence, host memory) behind the sequences. Blocks until `visit`
  // has had all logits: by position, or with a batch and `all` sequence by sequence in each pass.
  virtual void append(std::span<const std::int32_t> tokens, Logits which, const Visit& visit) = 0;
};
// Throws UsageError where the configuration is impossible, or has not so many positions.
std::unique_ptr<Inference> make_inference(const ModelConfig& config, const InferenceOptions& options);

Bytes key_value_cache_bytes(const ModelConfig& config, const InferenceOptions& options);
// Peak device bytes per tag, weights left aside: of a prompt of so many tokens and then one token at a time
// to the last position, found by running it on a device that executes nothing. The cache counts as
// activations.
TagBytes measure_inference_memory(const ModelConfig& config, const InferenceOptions& options,
                                  int prompt_tokens, Inference::Logits which, const OpsFactory& make_ops,
                                  int compute_threads = 0);

}  // namespace headrace
