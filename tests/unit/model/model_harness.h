// A model on the CPU device with hooks that simply hold every parameter and gradient: the engine without
// sharding.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "headrace/model.h"
#include "headrace/optimizer_update.h"
#include "headrace/state_hash.h"

namespace headrace::testing {

class HoldingHooks final : public ModuleHooks {
 public:
  struct Unit {
    UnitLayout layout;
    std::vector<float> master;
    std::vector<std::byte> parameters, gradient;
    int acquired = 0, gradients = 0;
  };
  explicit HoldingHooks(DType dtype) : dtype_(dtype) {}

  void add(UnitSpec spec) {
    Unit unit{.layout = make_unit_layout(std::move(spec)), .master = {}, .parameters = {}, .gradient = {}};
    unit.master.resize(unit.layout.numel);
    unit.parameters.resize(unit.layout.numel * size_of(dtype_));
    unit.gradient.resize(unit.layout.numel * size_of(dtype_));
    units.push_back(std::move(unit));
  }
  // The parameters as the model sees them.
  void publish() {
    for (Unit& unit : units) round_to(unit.master.data(), unit.parameters.data(), dtype_, unit.layout.numel);
  }
  float gradient_at(std::size_t unit, std::uint64_t element) const {
    return element_at(units[unit].gradient.data(), element, dtype_);
  }
  std::vector<std::byte> all_gradients() const {
    std::vector<std::byte> all;
    for (const Unit& unit : units) all.insert(all.end(), unit.gradient.begin(), unit.gradient.end());
    return all;
  }

  std::byte* acquire(UnitId unit) override {
    ++units.at(unit).acquired;
    return units[unit].parameters.data();
  }
  void release(UnitId unit) override { --units.at(unit).acquired; }
  std::byte* gradient_buffer(UnitId unit) override { return units.at(unit).gradient.data(); }
  void gradients_ready(UnitId unit) override { ++units.at(unit).gradients; }

  std::vector<Unit> units;

 private:
  DType dtype_;
};

// Element i of parameter `index` (counted over all units), as tests/python/decoder_reference.py computes it.
inline float hashed_weight(std::uint64_t index, std::uint64_t i, float mean) {
  const std::uint64_t bits = splitmix64(((index + 1) << 32) + i) >> 40;
  return (static_cast<float>(bits) * 0x1p-24f - 0.5f) * 0.125f + mean;
}

inline std::vector<std::int32_t> hashed_tokens(std::uint64_t step, const ModelConfig& config,
                                               const ModelOptions& options) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(options.batch) *
                                static_cast<std::size_t>(options.sequence + 1));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(splitmix64(((1000 + step) << 32) + i) %
                                       static_cast<std::uint64_t>(config.vocabulary));
  return ids;
}

class ModelRun {
 public:
  ModelRun(const ModelConfig& config, const ModelOptions& options, int threads = 2,
           Bytes memory_bytes = Bytes{256} << 20)
      : device(make_cpu_device({.memory_bytes = memory_bytes, .compute_threads = threads})),
        budget("device", memory_bytes),
        memory(device->arena(), budget),
        hooks(options.dtype),
        model(make_model(config, options)) {
    std::uint64_t index = 0;
    for (UnitSpec& spec : model->unit_specs()) {
      hooks.add(std::move(spec));
      HoldingHooks::Unit& unit = hooks.units.back();
      for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p, ++index)
        for (std::uint64_t i = 0; i < unit.layout.spec.parameters[p].numel(); ++i)
          unit.master[unit.layout.offsets[p] + i] =
              hashed_weight(index, i, unit.layout.spec.parameters[p].initial_mean);
    }
    hooks.publish();
    ops = make_cpu_ops(*device, memory);
    Model::Context context;
    context.ops = ops.get();
    context.device = device.get();
    context.memory = &memory;
    context.hooks = &hooks;
    for (std::size_t u = 0; u < hooks.units.size(); ++u) {
      context.units.push_back(static_cast<UnitId>(u));
      context.layouts.push_back(&hooks.units[u].layout);
    }
    model->bind(std::move(context));
  }

  float forward_backward(const std::vector<std::int32_t>& tokens, float loss_scale = 1.0f) {
    float loss = -1.0f;
    model->forward_backward(tokens.data(), loss_scale, &loss);
    device->synchronize();
    return loss;
  }
  float evaluate(const std::vector<std::int32_t>& tokens) {
    float loss = -1.0f;
    model->evaluate(tokens.data(), &loss);
    device->synchronize();
    return loss;
  }

  std::unique_ptr<Device> device;
  MemoryBudget budget;
  DeviceMemory memory;
  HoldingHooks hooks;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
};

}  // namespace headrace::testing
