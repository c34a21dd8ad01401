#include "tests/support/toy_module.h"

#include <limits>

#include "headrace/state_hash.h"

namespace headrace::testing {
namespace {

float load(const std::byte* base, std::uint64_t i, DType dtype) {
  return dtype == DType::f32 ? reinterpret_cast<const float*>(base)[i]
                             : to_float(reinterpret_cast<const bf16*>(base)[i]);
}

void store(std::byte* base, std::uint64_t i, DType dtype, float value) {
  if (dtype == DType::f32)
    reinterpret_cast<float*>(base)[i] = value;
  else
    reinterpret_cast<bf16*>(base)[i] = to_bf16(value);
}

}  // namespace

float toy_target(std::uint64_t sample, std::uint64_t step, std::uint64_t unit, std::uint64_t element) {
  const std::uint64_t bits = splitmix64(splitmix64(sample * 1000003 + step * 7919 + unit * 104729) + element);
  return static_cast<float>(bits >> 40) * 0x1.0p-24f - 0.5f;
}

std::vector<UnitSpec> awkward_units() {
  const auto parameter = [](std::string name, std::vector<std::int64_t> shape, bool decay, float std) {
    return ParameterSpec{.name = std::move(name),
                         .shape = std::move(shape),
                         .weight_decay = decay,
                         .initial_std = std,
                         .initial_mean = std == 0 ? 1.0f : 0.0f};
  };
  return {{"embedding", {parameter("wte", {257, 33}, true, 0.5f), parameter("empty", {0, 4}, true, 0.5f)}},
          {"block.0", {parameter("b0.norm", {65}, false, 0), parameter("b0.w", {101, 103}, true, 0.5f)}},
          {"scalar", {parameter("scale", {1}, false, 0), parameter("three", {3}, true, 0.5f)}},
          {"block.1", {parameter("b1.norm", {65}, false, 0), parameter("b1.w", {101, 103}, true, 0.5f)}},
          {"nothing", {parameter("void", {0}, true, 0.5f)}},
          {"head", {parameter("head.w", {7, 11}, true, 0.5f), parameter("head.b", {7}, false, 0)}}};
}

void ToyModule::attach(Engine& engine) {
  for (const UnitSpec& spec : specs) units.push_back(engine.add_unit(spec));
  silent.resize(units.size(), false);
}

void ToyModule::run(Engine& engine, Device& device, int sample, std::uint64_t step) {
  engine.begin_micro_batch();
  for (const UnitId unit : units) {  // forward: only touches the parameters
    const std::byte* parameters = engine.acquire(unit);
    const std::uint64_t numel = engine.layout(unit).numel;
    device.enqueue(Lane::compute, "toy forward", [parameters, numel, type = dtype] {
      volatile float sink = 0;
      for (std::uint64_t i = 0; i < numel; i += 997) sink = sink + load(parameters, i, type);
    });
    engine.release(unit);
  }
  for (std::size_t u = units.size(); u-- > 0;) {
    const UnitId unit = units[u];
    if (silent[u]) continue;
    const std::byte* parameters = engine.acquire(unit);
    std::byte* gradient = engine.gradient_buffer(unit);
    const UnitLayout& layout = engine.layout(unit);
    const float poison = poison_unit_1 && u == 1 ? std::numeric_limits<float>::infinity() : 0.0f;
    device.enqueue(Lane::compute, "toy backward", [=, &layout, type = dtype, gain = gradient_gain] {
      for (std::size_t p = 0; p < layout.offsets.size(); ++p)
        for (std::uint64_t i = 0; i < layout.spec.parameters[p].numel(); ++i) {
          const std::uint64_t at = layout.offsets[p] + i;
          const float difference =
              load(parameters, at, type) - toy_target(static_cast<std::uint64_t>(sample), step, u, at);
          store(gradient, at, type, gain * difference + (i == 5 ? poison : 0.0f));
        }
    });
    engine.release(unit);
    engine.gradients_ready(unit);
  }
}

}  // namespace headrace::testing
