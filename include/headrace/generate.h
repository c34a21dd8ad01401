// Token ids from a model's weights: a forward of one token at a time through a cache of keys and values, and
// a draw from its logits. The same weights, options and machine give the same tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/config.h"
#include "headrace/weight_source.h"

namespace headrace {

// In this order: logits over the temperature, the likeliest top_k, of these the likeliest that reach top_p.
struct SamplingOptions {
  double temperature = 1.0;  // 0: the likeliest token, the lowest id where several are
  int top_k = 0;             // 0: all
  double top_p = 1.0;
  std::uint64_t seed = 0;
};
// The id that `uniform`, in [0, 1), falls on. Error where a logit is not a number, or all are infinite.
std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& sampling, double uniform);
// A number of (seed, sequence, position) alone.
double draw_uniform(std::uint64_t seed, int sequence, int position);

struct GenerateOptions {
  std::vector<std::int32_t> prompt;  // at least one id
  int max_tokens = 256;              // 0: logits of the prompt alone
  int count = 1;                     // sequences, each with draws of its own
  SamplingOptions sampling;
  std::int32_t drawn_ids = 0;  // only ids below it are drawn; 0: all
  bool stops_at_end = true;    // at the configuration's end tokens
  bool all_logits = false;     // GenerateEvents::logits; of one sequence
  std::optional<DType> dtype;  // to compute in; none: that of the weights
  DeviceKind device = DeviceKind::cpu;
  Bytes device_memory_bytes = 0;  // 0: no limit given
  int threads = 0;
};

struct GeneratedSequence {
  // positions: the model has no more.
  enum class Ended : std::uint8_t { length, end_token, positions, stopped };
  std::vector<std::int32_t> tokens;  // behind the prompt; an end token is the last one
  Ended ended = Ended::stopped;
};

struct GenerateReport {
  std::vector<GeneratedSequence> sequences;
  std::string device;
  DType dtype = DType::f32;
  Bytes weights_bytes = 0, cache_bytes = 0, device_bytes = 0;  // device_bytes: of all
  int positions = 0;                                           // that the cache has room for
  double load_seconds = 0, prompt_seconds = 0, token_seconds = 0;
  bool stopped = false;
};

struct GenerateEvents {
  std::function<void(const GenerateReport&)> loaded = {};  // what is known before the prompt
  std::function<void(int sequence, std::int32_t token)> token = {};
  std::function<void(int position, std::span<const float> logits)> logits = {};
  std::function<bool()> stop_requested = {};  // asked between pieces of work
};

// Throws UsageError where prompt and model do not go together, DoesNotFit with what takes how much before
// anything is loaded.
GenerateReport generate(WeightSource& weights, const GenerateOptions& options, const GenerateEvents& events);

}  // namespace headrace
