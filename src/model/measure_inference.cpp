// What generating takes, found by running it on a device that executes nothing.
#include <algorithm>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "src/model/decoder_inference.h"
#include "src/model/null_device.h"

namespace headrace {
namespace {

class AddressHooks final : public ModuleHooks {
 public:
  explicit AddressHooks(std::byte* memory) : memory_(memory) {}
  std::byte* acquire(UnitId) override { return memory_; }
  void release(UnitId) override {}
  std::byte* gradient_buffer(UnitId) override { return memory_; }
  void gradients_ready(UnitId) override {}

 private:
  std::byte* memory_;
};

}  // namespace

TagBytes measure_inference_memory(const ModelConfig& config, const InferenceOptions& options,
                                  int prompt_tokens, Inference::Logits which, const OpsFactory& make_ops,
                                  int compute_threads) {
  NullDevice device(compute_threads > 0 ? compute_threads : cpu_threads());
  MemoryBudget budget("device", device.info().memory_capacity_bytes);
  DeviceMemory memory(device.arena(), budget);
  AddressHooks hooks(device.arena());
  DecoderInference inference(config, options);
  std::vector<UnitLayout> layouts;
  for (UnitSpec& spec : inference.unit_specs()) layouts.push_back(make_unit_layout(std::move(spec)));
  const std::unique_ptr<Ops> ops = make_ops(device, memory);
  Model::Context context{
      .device = &device, .memory = &memory, .hooks = &hooks, .ops = ops.get(), .units = {}, .layouts = {}};
  for (const UnitLayout& layout : layouts) {
    context.units.push_back(static_cast<UnitId>(context.units.size()));
    context.layouts.push_back(&layout);
  }
  inference.bind(std::move(context));
  const auto run = [&](int tokens) {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens) *
                                        static_cast<std::size_t>(options.batch));
    inference.append(ids, which, [](int, int, std::span<const float>) {});
  };
  run(prompt_tokens);
  // A step's products change where the rows of the cache that they read do.
  const int multiple = static_cast<int>(cache_rows_multiple);
  for (int used = prompt_tokens; used < options.positions; used = (used / multiple + 1) * multiple) {
    inference.pretend_used(used);
    run(1);
  }
  return budget.peak();
}

}  // namespace headrace
