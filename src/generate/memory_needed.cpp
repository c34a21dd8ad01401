#include "src/generate/memory_needed.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/backends.h"
#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "src/generate/loaded_weights.h"

namespace headrace {
namespace {

constexpr Bytes page_bytes = 4096;

struct Limit {
  Bytes bytes = 0;
  std::string text;
};

Limit limit_of(const GenerateOptions& options) {
  const Bytes available = available_device_memory(options.device, launch_info());
  if (options.device_memory_bytes > 0 && options.device_memory_bytes <= available)
    return {options.device_memory_bytes,
            fmt::format("--device-memory is {}", format_bytes(options.device_memory_bytes))};
  return {available, fmt::format("this machine has {} available", format_bytes(available))};
}

// The most tokens whose cache fits beside all else; 0: not one.
int fitting_tokens(const GenerateReport& report, const GenerateOptions& options, Bytes limit) {
  const Bytes others = report.device_bytes - report.cache_bytes;
  if (others >= limit) return 0;
  const auto rows = round_up(static_cast<Bytes>(report.positions), static_cast<Bytes>(cache_rows_multiple));
  const Bytes row_bytes = std::max<Bytes>(1, report.cache_bytes / rows);  // a model may have no layers
  const Bytes fitting = (limit - others) / row_bytes / cache_rows_multiple * cache_rows_multiple;
  return std::max(0, static_cast<int>(fitting) - static_cast<int>(options.prompt.size()) + 1);
}

[[noreturn]] void refuse(const GenerateReport& report, const GenerateOptions& options, const Limit& limit) {
  std::string advice;
  if (const int tokens = fitting_tokens(report, options, limit.bytes); tokens > 0)
    advice += fmt::format(" --max-tokens {} fits.", tokens);
  else if (options.count > 1)
    advice += " A smaller --count needs less.";
  if (report.dtype == DType::f32) advice += " --dtype bf16 takes about half.";
  throw DoesNotFit(fmt::format(
      "generating needs {} of device memory, and {}:\n  weights in {}  {}\n  keys and values  {} ({} "
      "positions of {} sequence{})\n  activations and scratch memory  {}\n{}",
      format_bytes(report.device_bytes), limit.text, name_of(report.dtype),
      format_bytes(report.weights_bytes), format_bytes(report.cache_bytes), report.positions, options.count,
      options.count == 1 ? "" : "s",
      format_bytes(report.device_bytes - report.weights_bytes - report.cache_bytes),
      advice.empty() ? "Give it more memory, or a smaller model." : advice.substr(1)));
}

}  // namespace

GenerateReport memory_needed(const ModelConfig& config, const InferenceOptions& shape,
                             const GenerateOptions& options) {
  GenerateReport report{.sequences = {}, .device = {}, .dtype = shape.dtype, .positions = shape.positions};
  report.weights_bytes = LoadedWeights::bytes_of(make_inference(config, shape)->unit_specs(), shape.dtype);
  report.cache_bytes = key_value_cache_bytes(config, shape);
  const auto which = options.all_logits ? Inference::Logits::all : Inference::Logits::last;
  const TagBytes measured = measure_inference_memory(config, shape, static_cast<int>(options.prompt.size()),
                                                     which, ops_factory(options.device), options.threads);
  report.device_bytes = round_up(report.weights_bytes + measured.total(), page_bytes);
  const Limit limit = limit_of(options);
  if (report.device_bytes > limit.bytes) refuse(report, options, limit);
  return report;
}

}  // namespace headrace
