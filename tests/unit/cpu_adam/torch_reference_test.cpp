#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/adam_arrays.h"
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

void expect_near(const char* name, const std::vector<float>& ours, const double (&torch)[torch_numel]) {
  for (std::uint64_t i = 0; i < torch_numel; ++i) {
    EXPECT_NEAR(ours[i], torch[i], 1e-6 * std::abs(torch[i]) + 1e-7) << name << "[" << i << "]";
  }
}

class TorchReference : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Every, TorchReference, every_isa, isa_test_name);

TEST_P(TorchReference, steps_1_3_and_200_equal_torch_adam_and_adamw) {
  for (const TorchFigures& figures : torch_figures) {
    SCOPED_TRACE(testing::Message() << "torch " << torch_version << (figures.decoupled ? " AdamW" : " Adam")
                                    << ", decay " << figures.weight_decay << ", eps " << figures.epsilon
                                    << ", step " << figures.step);
    std::vector<float> weights = values_from(0), exp_avg(torch_numel), exp_avg_sq(torch_numel);
    for (std::uint64_t step = 1; step <= figures.step; ++step) {
      const std::vector<float> gradient = values_from(1000 * step);
      const AdamArrays block = {.master = weights.data(),
                                .exp_avg = exp_avg.data(),
                                .exp_avg_sq = exp_avg_sq.data(),
                                .gradient = gradient.data(),
                                .numel = torch_numel};
      optimizer_update(block,
                       {.learning_rate = torch_learning_rate,
                        .epsilon = figures.epsilon,
                        .weight_decay = figures.weight_decay,
                        .decoupled = figures.decoupled,
                        .step = step},
                       GetParam());
    }
    expect_near("weights", weights, figures.weights);
    expect_near("exp_avg", exp_avg, figures.exp_avg);
    expect_near("exp_avg_sq", exp_avg_sq, figures.exp_avg_sq);
  }
}

}  // namespace
}  // namespace headrace::test
