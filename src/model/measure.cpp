// What a micro-batch takes and calls, found by running the model on a device that executes nothing.
#include "headrace/cpu_pool.h"
#include "headrace/model.h"
#include "src/model/null_device.h"

namespace headrace {
namespace {

class RecordingHooks final : public ModuleHooks {
 public:
  explicit RecordingHooks(std::byte* memory) : memory_(memory) {}
  std::byte* acquire(UnitId unit) override {
    calls.push_back({HookCall::Kind::acquire, unit});
    return memory_;
  }
  void release(UnitId unit) override { calls.push_back({HookCall::Kind::release, unit}); }
  std::byte* gradient_buffer(UnitId unit) override {
    calls.push_back({HookCall::Kind::gradient_buffer, unit});
    return memory_;
  }
  void gradients_ready(UnitId unit) override { calls.push_back({HookCall::Kind::gradients_ready, unit}); }

  std::vector<HookCall> calls;

 private:
  std::byte* memory_;
};

struct Dry {
  TagBytes memory;
  std::vector<HookCall> calls;
};

Dry run_dry(const ModelConfig& config, const ModelOptions& options, const OpsFactory& make_ops,
            int compute_threads) {
  NullDevice device(compute_threads > 0 ? compute_threads : cpu_threads());
  MemoryBudget budget("device", device.info().memory_capacity_bytes);
  DeviceMemory memory(device.arena(), budget);
  RecordingHooks hooks(device.arena());
  const std::unique_ptr<Model> model = make_model(config, options);
  std::vector<UnitLayout> layouts;
  for (UnitSpec& spec : model->unit_specs()) layouts.push_back(make_unit_layout(std::move(spec)));
  const std::unique_ptr<Ops> ops = make_ops(device, memory);
  Model::Context context;
  context.ops = ops.get();
  context.device = &device;
  context.memory = &memory;
  context.hooks = &hooks;
  for (const UnitLayout& layout : layouts) {
    context.units.push_back(static_cast<UnitId>(context.units.size()));
    context.layouts.push_back(&layout);
  }
  model->bind(std::move(context));
  float loss = 0;
  model->forward_backward(nullptr, 1.0f, &loss);
  return {budget.peak(), std::move(hooks.calls)};
}

}  // namespace

TagBytes measure_model_memory(const ModelConfig& config, const ModelOptions& options,
                              const OpsFactory& make_ops, int compute_threads) {
  return run_dry(config, options, make_ops, compute_threads).memory;
}

std::vector<HookCall> record_hook_calls(const ModelConfig& config, const ModelOptions& options) {
  return run_dry(config, options, make_cpu_ops, 1).calls;
}

}  // namespace headrace
