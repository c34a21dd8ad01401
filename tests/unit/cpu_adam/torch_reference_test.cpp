#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "headrace/optimizer_update.h"
#include "unit/cpu_adam/isa_test.h"
#include "unit/cpu_adam/torch_reference.h"

namespace headrace::test {
namespace {

// value() of adam_reference.py.
float value(std::uint64_t index) {
  std::uint64_t x = index + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) / 8388608.0f - 1.0f;
}

std::vector<float> values_from(std::uint64_t first) {
  std::vector<float> values(torch_numel);
  for (std::uint64_t i = 0; i < torch_numel; ++i) values[i] = value(first + i);
  return values;
}

void expect_near(const std::string& name, const std::vector<float>& ours, const double (&torch)[torch_numel],
                 double absolute = 1e-7) {
  for (std::uint64_t i = 0; i < torch_numel; ++i) {
    EXPECT_NEAR(ours[i], torch[i], 1e-6 * std::abs(torch[i]) + absolute) << name << "[" << i << "]";
  }
}

class TorchReference : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Every, TorchReference, every_isa, isa_test_name);

TEST_P(TorchReference, steps_1_3_and_200_equal_torch_optimizers) {
  for (const TorchFigures& figures : torch_figures) {
    OptimizerArguments arguments = figures.arguments;
    arguments.learning_rate = torch_learning_rate;
    SCOPED_TRACE(testing::Message() << "torch " << torch_version << " " << figures.optimizer << ", decay "
                                    << arguments.weight_decay << ", eps " << arguments.epsilon << ", amsgrad "
                                    << arguments.amsgrad << ", momentum " << arguments.momentum
                                    << ", nesterov " << arguments.nesterov << ", maximize "
                                    << arguments.maximize << ", step " << figures.step);
    UpdateSpan span;
    span.format = format_of(arguments, MasterDType::f32, MomentDType::f32);
    span.numel = torch_numel;
    std::vector<float> weights = values_from(0);
    std::vector<std::vector<float>> moments(most_moments, std::vector<float>(torch_numel));
    span.state.master = reinterpret_cast<std::byte*>(weights.data());
    for (std::size_t k = 0; k < most_moments; ++k)
      span.state.moments[k].values = reinterpret_cast<std::byte*>(moments[k].data());
    for (arguments.step = 1; arguments.step <= figures.step; ++arguments.step) {
      const std::vector<float> gradient = values_from(1000 * arguments.step);
      span.gradient = gradient.data();
      optimizer_update(span, arguments, GetParam());
    }
    expect_near("weights", weights, figures.weights);
    // SGD's buffer sums ten gradients' worth of numbers near 1, whose own roundings are 6e-8 each.
    const double absolute = arguments.kind == OptimizerKind::sgd ? 2e-7 : 1e-7;
    for (int k = 0; k < moment_count(span.format); ++k)
      expect_near(std::string(moment_of(span.format, k).name), moments[static_cast<std::size_t>(k)],
                  figures.moments[k], absolute);
  }
}

// Lion has no class in torch: its paper's Algorithm 2 (Chen et al. 2023), in double.
TEST_P(TorchReference, steps_of_lion_equal_its_paper_in_double) {
  for (const double decay : {0.0, 0.1}) {
    OptimizerArguments arguments = {.kind = OptimizerKind::lion,
                                    .learning_rate = torch_learning_rate,
                                    .beta1 = 0.9,
                                    .beta2 = 0.99,
                                    .weight_decay = decay};
    std::vector<float> weights = values_from(0), momentum(torch_numel);
    std::vector<double> w(weights.begin(), weights.end()), m(torch_numel);
    UpdateSpan span;
    span.format = format_of(arguments, MasterDType::f32, MomentDType::f32);
    span.numel = torch_numel;
    span.state.master = reinterpret_cast<std::byte*>(weights.data());
    span.state.moments[0].values = reinterpret_cast<std::byte*>(momentum.data());
    for (arguments.step = 1; arguments.step <= 200; ++arguments.step) {
      const std::vector<float> gradient = values_from(1000 * arguments.step);
      span.gradient = gradient.data();
      optimizer_update(span, arguments, GetParam());
      for (std::size_t i = 0; i < torch_numel; ++i) {
        const double c = 0.9 * m[i] + 0.1 * gradient[i], g = gradient[i];
        w[i] -= torch_learning_rate * ((c > 0 ? 1 : c < 0 ? -1 : 0) + decay * w[i]);
        m[i] = 0.99 * m[i] + 0.01 * g;
      }
    }
    for (std::size_t i = 0; i < torch_numel; ++i) {
      // Roundings of a number below 1, which all go one way while it moves by the same step.
      EXPECT_NEAR(weights[i], w[i], 200 * 0x1p-25) << i;
      EXPECT_NEAR(momentum[i], m[i], 1e-6 * std::abs(m[i]) + 1e-7) << i;
    }
  }
}

}  // namespace
}  // namespace headrace::test
