// Llama: its presets, parameters and calls, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "headrace/errors.h"
#include "tests/unit/model/model_harness.h"

namespace headrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ModelConfig small{.name = "small",
                        .family = ModelFamily::llama,
                        .layers = 2,
                        .width = 48,
                        .heads = 4,
                        .vocabulary = 67,
                        .max_positions = 40,
                        .tied_embedding = false,
                        .mlp_width = 100,
                        .key_heads = 2,
                        .head_width = 16};
const ModelOptions small_options{.dtype = DType::f32, .batch = 3, .sequence = 21};

std::uint64_t parameters_of(const ModelConfig& config) {
  std::uint64_t total = 0;
  for (const UnitSpec& unit : make_model(config, {.sequence = 1})->unit_specs())
    for (const ParameterSpec& parameter : unit.parameters) total += parameter.numel();
  return total;
}

std::string refusal_of(const ModelConfig& config, const ModelOptions& options = small_options) {
  try {
    make_model(config, options);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Llama, presets_have_the_parameters_they_promise) {
  EXPECT_EQ(parameters_of(model_preset("llama-1b")), 1'235'814'400u);  // meta-llama/Llama-3.2-1B
  EXPECT_EQ(parameters_of(model_preset("llama-160m")), 162'417'408u);  // JackFram/llama-160m
  EXPECT_NEAR(static_cast<double>(parameters_of(model_preset("llama-mini"))), 9.5e6, 0.5e6);
  EXPECT_LT(parameters_of(model_preset("llama-nano")), 150'000u);
}

TEST(Llama, names_and_shapes_are_those_of_hugging_face_and_norms_are_not_decayed) {
  const std::vector<UnitSpec> units = make_model(small, small_options)->unit_specs();
  ASSERT_EQ(units.size(), 4u);
  std::vector<std::string> names;
  std::vector<std::vector<std::int64_t>> shapes;
  for (const ParameterSpec& parameter : units[1].parameters) {
    names.push_back(parameter.name);
    shapes.push_back(parameter.shape);
  }
  EXPECT_THAT(
      names,
      ElementsAre("model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.weight",
                  "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                  "model.layers.0.self_attn.o_proj.weight", "model.layers.0.post_attention_layernorm.weight",
                  "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
                  "model.layers.0.mlp.down_proj.weight"));
  EXPECT_THAT(shapes, ElementsAre(ElementsAre(48), ElementsAre(64, 48), ElementsAre(32, 48),
                                  ElementsAre(32, 48), ElementsAre(48, 64), ElementsAre(48),
                                  ElementsAre(100, 48), ElementsAre(100, 48), ElementsAre(48, 100)));
  EXPECT_EQ(units[0].parameters[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(units[3].parameters[0].name, "model.norm.weight");
  EXPECT_EQ(units[3].parameters[1].name, "lm_head.weight");
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& parameter : unit.parameters)
      EXPECT_EQ(parameter.weight_decay, parameter.shape.size() == 2) << parameter.name;
}

TEST(Llama, impossible_configurations_are_refused_and_say_why) {
  const auto with = [](auto change) {
    ModelConfig config = small;
    change(config);
    return refusal_of(config);
  };
  EXPECT_EQ(refusal_of(small), "");
  EXPECT_THAT(with([](ModelConfig& c) { c.rope_scaling = "llama3"; }), HasSubstr("rope_scaling \"llama3\""));
  EXPECT_THAT(with([](ModelConfig& c) { c.key_heads = 3; }), HasSubstr("heads of keys"));
  EXPECT_THAT(with([](ModelConfig& c) { c.key_heads = -2; }), HasSubstr("negative"));
  EXPECT_THAT(with([](ModelConfig& c) { c.head_width = 1 << 30; }), HasSubstr("too wide"));
  EXPECT_THAT(with([](ModelConfig& c) { c.head_width = 17; }), HasSubstr("even"));
  EXPECT_THAT(with([](ModelConfig& c) { c.rope_theta = 0; }), HasSubstr("rope_theta"));
  EXPECT_THAT(with([](ModelConfig& c) { c.norm_epsilon = 0; }), HasSubstr("epsilon"));
  EXPECT_THAT(with([](ModelConfig& c) { c.mlp_width = 101; }), HasSubstr("multiple of 64 elements"));
  EXPECT_THAT(refusal_of(small, {.batch = 1, .sequence = 41}), HasSubstr("40 positions"));
}

TEST(Llama, its_keys_alone_are_refused_in_gpt2) {
  ModelConfig gpt2{.name = "g", .layers = 1, .width = 48, .heads = 4};
  EXPECT_EQ(refusal_of(gpt2), "");
  gpt2.key_heads = 2;
  EXPECT_THAT(refusal_of(gpt2), HasSubstr("GPT-2"));
}

// The order of hooks is the loop's, whatever the family.
TEST(Llama, calls_are_those_of_gpt2) {
  ModelConfig gpt2 = small;
  gpt2.family = ModelFamily::gpt2;
  gpt2.key_heads = 0, gpt2.head_width = 0;
  for (const bool fused_head : {false, true}) {
    ModelOptions options = small_options;
    options.fused_head = fused_head;
    const std::vector<HookCall> ours = record_hook_calls(small, options),
                                theirs = record_hook_calls(gpt2, options);
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].kind, theirs[i].kind);
      EXPECT_EQ(ours[i].unit_index, theirs[i].unit_index);
    }
  }
}

// Every parameter's gradient against the loss itself: one directional derivative along a hashed direction
// each.
TEST(Llama, gradient_of_every_parameter_is_the_slope_of_the_loss) {
  ModelRun run(small, small_options);
  const auto tokens = hashed_tokens(0, small, small_options);
  run.forward_backward(tokens);
  std::uint64_t stream = 100;
  for (std::size_t u = 0; u < run.hooks.units.size(); ++u) {
    HoldingHooks::Unit& unit = run.hooks.units[u];
    for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p, ++stream) {
      const std::uint64_t numel = unit.layout.spec.parameters[p].numel(), at = unit.layout.offsets[p];
      const std::vector<float> before(unit.master.begin() + static_cast<std::ptrdiff_t>(at),
                                      unit.master.begin() + static_cast<std::ptrdiff_t>(at + numel));
      double slope = 0;
      std::vector<float> direction(numel);
      const float length = 1.0f / std::sqrt(static_cast<float>(numel));
      for (std::uint64_t i = 0; i < numel; ++i) {
        // Along the gradient's own sign, so that the terms do not cancel.
        const float g = run.hooks.gradient_at(u, at + i);
        direction[i] = (0.5f + hashed_weight(stream, i, 0.5f)) * (g < 0 ? -length : length);
        slope += static_cast<double>(g) * static_cast<double>(direction[i]);
      }
      const auto loss_at = [&](float step) {
        for (std::uint64_t i = 0; i < numel; ++i) unit.master[at + i] = before[i] + step * direction[i];
        run.hooks.publish();
        return static_cast<double>(run.evaluate(tokens));
      };
      constexpr float step = 0.02f;
      const double measured = (loss_at(step) - loss_at(-step)) / (2 * static_cast<double>(step));
      loss_at(0);
      EXPECT_NEAR(measured, slope, 0.02 * slope + 1e-4) << unit.layout.spec.parameters[p].name;
    }
  }
}

}  // namespace
}  // namespace headrace::testing
