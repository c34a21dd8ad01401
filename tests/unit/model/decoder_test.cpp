// Models of every family as their callers see them: hooks, memory, options that must not change results,
// refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "tests/unit/model/model_harness.h"

namespace headrace::testing {
namespace {

const ModelOptions small_options{.dtype = DType::bf16, .batch = 3, .sequence = 21};

ModelConfig small_of(ModelFamily family, bool tied) {
  ModelConfig config{.name = "small",
                     .family = family,
                     .layers = 2,
                     .width = 48,
                     .heads = 3,
                     .vocabulary = 67,
                     .max_positions = 40,
                     .tied_embedding = tied};
  // Heads that together are wider than the residual stream.
  if (family == ModelFamily::llama)
    config.heads = 4, config.key_heads = 2, config.head_width = 16, config.mlp_width = 100;
  return config;
}

const char* name_of_family(ModelFamily family) {
  return family == ModelFamily::gpt2 ? "gpt2" : "llama";
}

class DecoderOfFamily : public ::testing::TestWithParam<std::tuple<ModelFamily, bool>> {
 protected:
  ModelConfig config() const { return small_of(std::get<0>(GetParam()), std::get<1>(GetParam())); }
};
const auto families = ::testing::Values(ModelFamily::gpt2, ModelFamily::llama);
INSTANTIATE_TEST_SUITE_P(Families, DecoderOfFamily, ::testing::Combine(families, ::testing::Bool()),
                         [](const auto& param) {
                           return std::string(name_of_family(std::get<0>(param.param))) +
                                  (std::get<1>(param.param) ? "_tied" : "_untied");
                         });

class DecoderOfType : public ::testing::TestWithParam<std::tuple<ModelFamily, DType, bool>> {
 protected:
  ModelConfig config() const { return small_of(std::get<0>(GetParam()), std::get<2>(GetParam())); }
  ModelOptions options() const {
    ModelOptions options = small_options;
    options.dtype = std::get<1>(GetParam());
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, DecoderOfType,
                         ::testing::Combine(families, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                                            ::testing::Bool()),
                         [](const auto& param) {
                           return std::string(name_of_family(std::get<0>(param.param))) + "_" +
                                  std::string(name_of(std::get<1>(param.param))) +
                                  (std::get<2>(param.param) ? "_tied" : "_untied");
                         });

TEST_P(DecoderOfType, recompute_and_fused_head_change_no_bit_of_loss_and_gradients) {
  ModelRun plain(config(), options());
  const auto tokens = hashed_tokens(0, config(), options());
  const float loss = plain.forward_backward(tokens);
  EXPECT_NEAR(loss, std::log(67.0), 0.5);
  for (const bool recompute : {false, true})
    for (const bool fused_head : {false, true}) {
      ModelOptions other = options();
      other.recompute = recompute;
      other.fused_head = fused_head;
      ModelRun run(config(), other);
      EXPECT_EQ(run.forward_backward(tokens), loss);
      EXPECT_TRUE(run.hooks.all_gradients() == plain.hooks.all_gradients()) << recompute << fused_head;
    }
}

TEST_P(DecoderOfType, a_second_micro_batch_overwrites_every_gradient) {
  ModelRun first(config(), options()), second(config(), options());
  const auto tokens = hashed_tokens(0, config(), options());
  first.forward_backward(hashed_tokens(1, config(), options()));
  first.forward_backward(tokens);
  second.forward_backward(tokens);
  EXPECT_TRUE(first.hooks.all_gradients() == second.hooks.all_gradients());
}

TEST_P(DecoderOfType, evaluate_gives_the_loss_of_forward_and_no_gradient) {
  ModelRun run(config(), options());
  const auto tokens = hashed_tokens(0, config(), options());
  const float loss = run.evaluate(tokens);
  for (const HoldingHooks::Unit& unit : run.hooks.units) EXPECT_EQ(unit.gradients, 0);
  EXPECT_EQ(run.forward_backward(tokens), loss);
  EXPECT_EQ(run.evaluate(tokens), loss);
}

// Where no gradient is a denormal: fp16's are, which is what its loss scale is for.
TEST_P(DecoderOfFamily, a_power_of_two_loss_scale_scales_every_gradient_exactly) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    ModelOptions options = small_options;
    options.dtype = dtype;
    ModelRun run(config(), options), scaled(config(), options);
    const auto tokens = hashed_tokens(0, config(), options);
    EXPECT_EQ(run.forward_backward(tokens), scaled.forward_backward(tokens, 4.0f));
    for (std::size_t u = 0; u < run.hooks.units.size(); ++u)
      for (std::uint64_t i = 0; i < run.hooks.units[u].layout.numel; ++i)
        ASSERT_EQ(4 * run.hooks.gradient_at(u, i), scaled.hooks.gradient_at(u, i)) << u << " " << i;
  }
}

TEST_P(DecoderOfType, measured_memory_and_calls_are_those_of_a_real_run) {
  for (const bool recompute : {false, true})
    for (const bool fused_head : {false, true})
      for (const int threads : {1, 2}) {
        ModelOptions other = options();
        other.recompute = recompute;
        other.fused_head = fused_head;
        set_cpu_threads(threads);
        ModelRun run(config(), other, threads);
        run.forward_backward(hashed_tokens(0, config(), other));
        const TagBytes measured = measure_model_memory(config(), other, make_cpu_ops),
                       peak = run.budget.peak();
        set_cpu_threads(0);
        EXPECT_EQ(measured.bytes, peak.bytes);
        EXPECT_EQ(measure_model_memory(config(), other, make_cpu_ops, threads).bytes, peak.bytes);
        EXPECT_EQ(run.budget.current().total(), 0u);
        for (const HoldingHooks::Unit& unit : run.hooks.units) {
          EXPECT_EQ(unit.acquired, 0);
          EXPECT_EQ(unit.gradients, 1);
        }
      }
}

TEST_P(DecoderOfFamily, evaluate_takes_no_more_memory_than_training) {
  for (const bool recompute : {false, true}) {
    ModelOptions options = small_options;
    options.recompute = recompute;
    ModelRun run(config(), options);
    run.evaluate(hashed_tokens(0, config(), options));
    const TagBytes training = measure_model_memory(config(), options, make_cpu_ops),
                   evaluation = run.budget.peak();
    for (std::size_t tag = 0; tag < memory_tag_count; ++tag)
      EXPECT_LE(evaluation.bytes[tag], training.bytes[tag]) << tag;
  }
}

// Relative distance of all gradients, unscaled, from those of fp32.
double distance_from_fp32(const ModelConfig& config, DType dtype, float loss_scale) {
  ModelOptions low = small_options, high = small_options;
  low.dtype = dtype, high.dtype = DType::f32;
  ModelRun low_run(config, low), high_run(config, high);
  const auto tokens = hashed_tokens(0, config, high);
  EXPECT_NEAR(low_run.forward_backward(tokens, loss_scale), high_run.forward_backward(tokens), 0.01);
  double difference = 0, total = 0;
  for (std::size_t u = 0; u < low_run.hooks.units.size(); ++u)
    for (std::uint64_t i = 0; i < low_run.hooks.units[u].layout.numel; ++i) {
      const double exact = high_run.hooks.gradient_at(u, i);
      difference += std::pow(low_run.hooks.gradient_at(u, i) / loss_scale - exact, 2);
      total += exact * exact;
    }
  return std::sqrt(difference / total);
}

TEST_P(DecoderOfFamily, bf16_follows_fp32) {
  EXPECT_LT(distance_from_fp32(config(), DType::bf16, 1), 0.02);
}

TEST_P(DecoderOfFamily, fp16_with_a_loss_scale_follows_fp32_eight_times_as_closely_as_bf16) {
  EXPECT_LT(distance_from_fp32(config(), DType::f16, 4096), 0.02 / 8);
}

// What the scale is for: without one, gradients fall below the smallest fp16.
TEST_P(DecoderOfFamily, fp16_loses_gradients_that_a_loss_scale_keeps) {
  EXPECT_GT(distance_from_fp32(config(), DType::f16, 0x1p-10f),
            4 * distance_from_fp32(config(), DType::f16, 4096));
}

TEST_P(DecoderOfFamily, too_little_device_memory_does_not_fit_and_leaves_nothing_charged) {
  ModelRun run(config(), small_options, 2, Bytes{64} << 10);
  const auto tokens = hashed_tokens(0, config(), small_options);
  float loss = 0;
  EXPECT_THROW(run.model->forward_backward(tokens.data(), 1.0f, &loss), DoesNotFit);
  run.device->synchronize();
  EXPECT_EQ(run.budget.current().total(), 0u);
}

TEST_P(DecoderOfFamily, target_outside_the_vocabulary_is_an_error) {
  ModelRun run(config(), small_options);
  auto tokens = hashed_tokens(0, config(), small_options);
  tokens.back() = 67;  // only ever a target
  EXPECT_THROW(run.forward_backward(tokens), UsageError);
}

}  // namespace
}  // namespace headrace::testing
