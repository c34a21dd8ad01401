#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "unit/cpu_adam/adam_cases.h"
#include "unit/cpu_adam/isa_test.h"

namespace headrace::test {
namespace {

constexpr Low lows[] = {Low::none, Low::bf16, Low::f32};
constexpr DType dtypes[] = {DType::f32, DType::bf16};

Update with(const OptimizerArguments& arguments, Isa isa) {
  return [=](const AdamArrays& block) { optimizer_update(block, arguments, isa); };
}

class AdamOnIsa : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Every, AdamOnIsa, every_isa, isa_test_name);

TEST_P(AdamOnIsa, update_has_the_bits_of_the_formula_at_every_numel_and_offset_and_touches_no_byte_beyond) {
  for (const std::uint64_t numel : tested_numels) {
    for (std::size_t offset = 0; offset <= 60; offset += 2) {
      AdamCase input = adversarial_case(numel, static_cast<std::uint32_t>(numel * 64 + offset));
      input.offset_bytes = offset;
      input.low = lows[offset / 2 % 3];
      input.gradient_dtype = dtypes[offset / 2 % 2];
      const OptimizerArguments arguments = {
          .weight_decay = 0.1, .decoupled = offset % 4 == 0, .step = 3, .gradient_scale = 0.37f};
      ASSERT_EQ(difference(run(input, with(arguments, GetParam())), expected(input, arguments)), "")
          << "numel " << numel << ", offset " << offset;
    }
  }
}

TEST_P(AdamOnIsa, update_has_the_bits_of_the_formula_for_every_dtype_decay_and_step) {
  for (const DType gradient_dtype : dtypes) {
    for (const Low low : lows) {
      for (const bool decoupled : {false, true}) {
        for (const double weight_decay : {0.0, 0.1}) {
          for (const std::uint64_t step : {1, 3, 1000, 100000000}) {
            AdamCase input = step == 3 ? adversarial_case(1025, 7) : ordinary_case(1025, 11);
            input.gradient_dtype = gradient_dtype;
            input.low = low;
            const OptimizerArguments arguments = {
                .weight_decay = weight_decay, .decoupled = decoupled, .step = step};
            ASSERT_EQ(difference(run(input, with(arguments, GetParam())), expected(input, arguments)), "")
                << name_of(gradient_dtype) << " decoupled " << decoupled << " decay " << weight_decay
                << " step " << step;
          }
        }
      }
    }
  }
}

TEST_P(AdamOnIsa, denormal_moments_and_outputs_are_kept) {
  AdamCase input;
  input.master.assign(40, 0x1.8p-133f);  // halfway between two bf16 denormals
  input.exp_avg.assign(40, 0x1p-140f);
  input.exp_avg_sq.assign(40, 0x1p-140f);
  input.gradient.assign(40, 0.0f);
  input.low = Low::bf16;
  const AdamResult result = run(input, with({.learning_rate = 0.0}, GetParam()));
  for (std::size_t i = 0; i < 40; ++i) {
    ASSERT_GT(result.exp_avg[i], 0.0f);
    ASSERT_GT(result.exp_avg_sq[i], 0.0f);
    ASSERT_EQ(result.low[i], 0x1p-132f);
    ASSERT_EQ(result.master[i], 0x1.8p-133f);
  }
}

// With no epsilon and a moment of 1, a wrong last bit of sqrt(v) / sqrt(1 - beta2^t) shows in the weight.
TEST_P(AdamOnIsa, division_by_the_bias_correction_is_correctly_rounded_over_the_range_of_square_roots) {
  AdamCase input = ordinary_case(1 << 15, 41);
  std::mt19937 random(43);
  for (float& v : input.exp_avg_sq)
    v = std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7f800001u));  // 0 to infinity
  input.master.assign(input.master.size(), 0.0f);
  input.exp_avg.assign(input.master.size(), 1.0f);
  input.gradient.assign(input.master.size(), 0.0f);
  for (const double beta2 : {0.0, 0.95, 0.999, 0.9999999}) {
    for (const std::uint64_t step : {1, 2, 3, 10, 1000, 100000}) {
      const OptimizerArguments arguments = {
          .learning_rate = 1.0, .beta2 = beta2, .epsilon = 0.0, .step = step};
      ASSERT_EQ(difference(run(input, with(arguments, GetParam())), expected(input, arguments)), "")
          << "beta2 " << beta2 << ", step " << step;
    }
  }
}

TEST_P(AdamOnIsa, learning_rate_zero_leaves_weights_and_updates_moments) {
  const AdamCase input = ordinary_case(333, 5);
  const AdamResult result = run(input, with({.learning_rate = 0.0, .weight_decay = 0.1}, GetParam()));
  EXPECT_EQ(result.master, input.master);
  for (std::size_t i = 0; i < 333; ++i) {
    ASSERT_NE(result.exp_avg[i], input.exp_avg[i]);
    ASSERT_NE(result.exp_avg_sq[i], input.exp_avg_sq[i]);
  }
}

TEST_P(AdamOnIsa, update_in_1_2_or_7_blocks_has_the_same_bits) {
  const OptimizerArguments arguments = {.weight_decay = 0.01, .step = 3};
  AdamCase input = ordinary_case(10007, 21);
  input.gradient_dtype = DType::bf16;
  input.low = Low::bf16;
  const AdamResult whole = run(input, with(arguments, GetParam()));
  for (const std::uint64_t blocks : {2, 7}) {
    const AdamResult split = run(input, [&](const AdamArrays& block) {
      for (std::uint64_t k = 0; k < blocks; ++k) {
        const std::uint64_t begin = block.numel * k / blocks, end = block.numel * (k + 1) / blocks;
        AdamArrays part = block;
        part.master += begin, part.exp_avg += begin, part.exp_avg_sq += begin;
        part.gradient = static_cast<const bf16*>(block.gradient) + begin;
        part.low_precision = static_cast<bf16*>(block.low_precision) + begin;
        part.numel = end - begin;
        optimizer_update(part, arguments, GetParam());
      }
    });
    EXPECT_EQ(difference(whole, split), "") << blocks << " blocks";
  }
}

TEST_P(AdamOnIsa, update_is_near_the_textbook_formula_in_double) {
  const AdamCase input = ordinary_case(257, 31);
  const OptimizerArguments a = {
      .learning_rate = 1e-2, .weight_decay = 0.1, .step = 3, .gradient_scale = 0.5f};
  const AdamResult result = run(input, with(a, GetParam()));
  for (std::size_t i = 0; i < 257; ++i) {
    const double g = input.gradient[i] * 0.5;
    const double m = 0.9 * input.exp_avg[i] + 0.1 * g;
    const double v = 0.999 * input.exp_avg_sq[i] + 0.001 * g * g;
    const double m_hat = m / (1 - 0.9 * 0.9 * 0.9), v_hat = v / (1 - 0.999 * 0.999 * 0.999);
    const double p = input.master[i] * (1 - 1e-2 * 0.1) - 1e-2 * m_hat / (std::sqrt(v_hat) + 1e-8);
    ASSERT_NEAR(result.master[i], p, 1e-6 * std::abs(p) + 1e-7);
    ASSERT_NEAR(result.exp_avg[i], m, 1e-6 * std::abs(m) + 1e-7);
    ASSERT_NEAR(result.exp_avg_sq[i], v, 1e-6 * v + 1e-7);
  }
}

TEST(UpdateConstants, are_computed_in_double_and_rounded_once) {
  const UpdateConstants c = constants_of({.learning_rate = 1e-3, .weight_decay = 0.1, .step = 1});
  EXPECT_EQ(c.step_size, static_cast<float>(1e-3 / (1.0 - 0.9)));
  EXPECT_EQ(c.sqrt_bias2, static_cast<float>(std::sqrt(1.0 - 0.999)));
  EXPECT_EQ(c.one_minus_beta2, static_cast<float>(1.0 - 0.999));
  EXPECT_NE(c.one_minus_beta2, 1.0f - 0.999f);  // what fp32 arithmetic would give
  EXPECT_EQ(c.decay, static_cast<float>(1.0 - 1e-4));
  EXPECT_EQ(c.coupled_decay, 0.0f);
}

TEST(UpdateConstants, after_a_jump_of_the_step_equal_the_power_not_a_running_product) {
  const UpdateConstants c = constants_of({.step = 1000});
  EXPECT_EQ(c.sqrt_bias2, static_cast<float>(std::sqrt(1.0 - std::pow(0.999, 1000.0))));
}

TEST(UpdateConstants, refuse_what_fp32_cannot_hold) {
  constexpr OptimizerKind sgd = OptimizerKind::sgd;
  EXPECT_THROW(constants_of({.learning_rate = 1e38}), UsageError);  // over 1 - beta1
  EXPECT_NO_THROW(constants_of({.kind = sgd, .learning_rate = 1e38}));
  EXPECT_THROW(constants_of({.kind = sgd, .learning_rate = 1e39}), UsageError);
  EXPECT_THROW(constants_of({.epsilon = 1e300}), UsageError);
  EXPECT_THROW(constants_of({.epsilon = 1e-46}), UsageError);
  EXPECT_EQ(constants_of({.epsilon = 0}).epsilon, 0);
  EXPECT_GT(constants_of({.epsilon = 1e-45}).epsilon, 0);
  EXPECT_THROW(constants_of({.weight_decay = 1e300}), UsageError);
  EXPECT_THROW(constants_of({.weight_decay = 1e300, .decoupled = false}), UsageError);
  EXPECT_THROW(constants_of({.kind = sgd, .momentum = 1e300}), UsageError);
  for (const float scale : {std::nanf(""), HUGE_VALF, -HUGE_VALF})
    EXPECT_THROW(constants_of({.gradient_scale = scale}), UsageError) << scale;
}

TEST(UpdateConstants, refuse_what_has_no_meaning) {
  EXPECT_THROW(constants_of({.learning_rate = -1e-3}), UsageError);
  EXPECT_THROW(constants_of({.learning_rate = std::nan("")}), UsageError);
  EXPECT_THROW(constants_of({.beta1 = 1.0}), UsageError);
  EXPECT_THROW(constants_of({.beta2 = -0.1}), UsageError);
  EXPECT_THROW(constants_of({.epsilon = -1e-8}), UsageError);
  EXPECT_THROW(constants_of({.weight_decay = -0.1}), UsageError);
  EXPECT_THROW(constants_of({.step = 0}), UsageError);
}

}  // namespace
}  // namespace headrace::test
