#include "tests/support/toy_module.h"

#include <limits>

namespace headrace::testing {
namespace {

class HostToyCompute final : public ToyCompute {
 public:
  void read(Device& device, const std::byte* parameters, std::uint64_t numel, DType dtype) override {
    device.enqueue(Lane::compute, "toy forward", [=] {
      volatile float sink = 0;
      for (std::uint64_t i = 0; i < numel; i += 997) sink = sink + element_at(parameters, i, dtype);
    });
  }
  void gradient(Device& device, const ToyGradient& g) override {
    device.enqueue(Lane::compute, "toy backward", [g] {
      for (std::uint64_t i = 0; i < g.numel; ++i) {
        const float difference =
            element_at(g.parameters, i, g.dtype) - toy_target(g.sample, g.step, g.unit, g.first + i);
        set_element(g.gradient, i, g.dtype,
                    i == g.poisoned ? std::numeric_limits<float>::infinity() : g.gain * difference);
      }
    });
  }
};

}  // namespace

ToyCompute& host_toy_compute() {
  static HostToyCompute compute;
  return compute;
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
  skipped.resize(units.size(), false);
}

void ToyModule::run(Engine& engine, Device& device, int sample, std::uint64_t step) {
  engine.begin_micro_batch();
  for (std::size_t u = 0; u < units.size(); ++u) {  // forward: only touches the parameters
    if (skipped[u]) continue;
    compute->read(device, engine.acquire(units[u]), engine.layout(units[u]).numel, dtype);
    engine.release(units[u]);
  }
  for (std::size_t u = units.size(); u-- > 0;) {
    if (!silent[u]) backward(engine, device, u, static_cast<std::uint64_t>(sample), step);
  }
}

void ToyModule::backward(Engine& engine, Device& device, std::size_t u, std::uint64_t sample,
                         std::uint64_t step) {
  const UnitId unit = units[u];
  const std::byte* parameters = engine.acquire(unit);
  std::byte* gradient = engine.gradient_buffer(unit);
  const UnitLayout& layout = engine.layout(unit);
  for (std::size_t p = 0; p < layout.offsets.size(); ++p) {
    const Bytes offset = layout.offsets[p] * size_of(dtype);
    compute->gradient(device, {.parameters = parameters + offset,
                               .gradient = gradient + offset,
                               .dtype = dtype,
                               .first = layout.offsets[p],
                               .numel = layout.spec.parameters[p].numel(),
                               .sample = sample,
                               .step = step,
                               .unit = u,
                               .gain = gradient_gain * loss_scale,
                               .poisoned = poison_unit_1 && u == 1 ? 5 : ~std::uint64_t{0}});
  }
  engine.release(unit);
  engine.gradients_ready(unit);
}

}  // namespace headrace::testing
