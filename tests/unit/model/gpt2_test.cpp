// GPT-2: its presets, parameters and calls, and how types and sizes show in its results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "tests/unit/model/model_harness.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

const ModelConfig small{
    .name = "small", .layers = 2, .width = 48, .heads = 3, .vocabulary = 67, .max_positions = 40};
const ModelOptions small_options{.dtype = DType::bf16, .batch = 3, .sequence = 21};

ModelConfig with_tie(ModelConfig config, bool tied) {
  config.tied_embedding = tied;
  return config;
}

std::uint64_t parameters_of(const ModelConfig& config) {
  std::uint64_t total = 0;
  for (const UnitSpec& unit : make_model(config, {.sequence = 1})->unit_specs())
    for (const ParameterSpec& parameter : unit.parameters) total += parameter.numel();
  return total;
}

TEST(Gpt2, presets_have_the_parameters_they_promise) {
  EXPECT_EQ(parameters_of(model_preset("gpt2-124m")), 124'439'808u);  // Hugging Face's gpt2
  EXPECT_EQ(parameters_of(model_preset("gpt2-355m")), 354'823'168u);  // its gpt2-medium
  EXPECT_EQ(parameters_of(model_preset("gpt2-350m")), 354'823'168u);
  EXPECT_EQ(parameters_of(model_preset("gpt2-774m")), 774'030'080u);    // its gpt2-large
  EXPECT_EQ(parameters_of(model_preset("gpt2-1.5b")), 1'557'611'200u);  // its gpt2-xl
  EXPECT_NEAR(static_cast<double>(parameters_of(model_preset("gpt2-mini"))), 10.8e6, 0.1e6);
  EXPECT_GE(parameters_of(model_preset("gpt2-70m")), 70'000'000u);
}

TEST(Gpt2, unknown_preset_is_refused_with_the_nearest_name) {
  try {
    model_preset("gpt2-mimi");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("gpt2-mini?"));
  }
}

TEST(Gpt2, impossible_shapes_are_refused) {
  const auto refuse = [](ModelConfig config, const ModelOptions& options) {
    EXPECT_THROW(make_model(config, options), UsageError);
  };
  refuse(small, {.batch = 1, .sequence = 41});  // longer than the positions
  refuse(small, {.batch = 0, .sequence = 1});
  ModelConfig uneven = small;
  uneven.heads = 5;
  refuse(uneven, small_options);
}

TEST(Gpt2, norms_and_biases_are_not_decayed_and_names_are_those_of_hugging_face) {
  const std::vector<UnitSpec> units = make_model(with_tie(small, false), small_options)->unit_specs();
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(units[1].name, "h.0");
  EXPECT_EQ(units[1].parameters[2].name, "h.0.attn.c_attn.weight");
  EXPECT_THAT(units[1].parameters[2].shape, ::testing::ElementsAre(48, 144));
  EXPECT_EQ(units[3].parameters.back().name, "lm_head.weight");
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& parameter : unit.parameters)
      EXPECT_EQ(parameter.weight_decay, parameter.shape.size() == 2) << parameter.name;
}

TEST(Gpt2, recompute_keeps_one_input_a_block) {
  ModelConfig deep = small;
  deep.layers = 12;
  ModelOptions options = small_options, saving = small_options;
  saving.recompute = true;
  ModelConfig deeper = deep;
  deeper.layers = 13;
  const Bytes input = round_up(3 * 21 * 48 * 2, 64);
  EXPECT_EQ(measure_model_memory(deeper, saving, make_cpu_ops)[MemoryTag::activations] -
                measure_model_memory(deep, saving, make_cpu_ops)[MemoryTag::activations],
            input);
  EXPECT_GT(measure_model_memory(deep, options, make_cpu_ops)[MemoryTag::activations],
            3 * measure_model_memory(deep, saving, make_cpu_ops)[MemoryTag::activations]);
}

std::vector<std::string> calls_of(const ModelOptions& options, bool tied) {
  static const char* const names[] = {"acquire", "release", "gradient", "ready"};
  std::vector<std::string> calls;
  ModelConfig config = with_tie(small, tied);
  config.layers = 1;
  for (const HookCall& call : record_hook_calls(config, options))
    calls.push_back(std::string(names[static_cast<int>(call.kind)]) + " " + std::to_string(call.unit_index));
  return calls;
}

TEST(Gpt2, without_fused_head_and_tie_every_unit_is_acquired_twice) {
  ModelOptions options = small_options;
  options.fused_head = false;
  EXPECT_THAT(
      calls_of(options, false),
      ::testing::ElementsAre("acquire 0", "release 0", "acquire 1", "release 1", "acquire 2", "release 2",
                             "acquire 2", "gradient 2", "release 2", "ready 2", "acquire 1", "gradient 1",
                             "release 1", "ready 1", "acquire 0", "gradient 0", "release 0", "ready 0"));
}

TEST(Gpt2, fused_tied_head_acquires_the_embedding_inside_and_backward_of_the_embedding_acquires_nothing) {
  EXPECT_THAT(
      calls_of(small_options, true),
      ::testing::ElementsAre("acquire 0", "release 0", "acquire 1", "release 1", "acquire 2", "acquire 0",
                             "gradient 2", "release 0", "release 2", "ready 2", "acquire 1", "gradient 1",
                             "release 1", "ready 1", "gradient 0", "ready 0"));
}

TEST(Gpt2, sequence_of_one_token_and_no_layer_work) {
  for (const int layers : {0, 1}) {
    ModelConfig config = small;
    config.layers = layers;
    const ModelOptions options{.dtype = DType::f32, .batch = 1, .sequence = 1};
    ModelRun run(config, options);
    EXPECT_NEAR(run.forward_backward(hashed_tokens(0, config, options)), std::log(67.0), 1.0);
  }
}

// 50257 is no multiple of any vector or tile; 200 rows of it are more than one piece of logits.
TEST(Gpt2, large_odd_vocabulary_goes_in_pieces_with_the_gradient_of_the_whole) {
  const ModelConfig config{
      .name = "wide", .layers = 0, .width = 16, .heads = 1, .vocabulary = 50257, .max_positions = 200};
  const ModelOptions options{.dtype = DType::f32, .batch = 1, .sequence = 200};
  ModelRun run(config, options);
  const auto tokens = hashed_tokens(0, config, options);
  const double loss = run.forward_backward(tokens);
  EXPECT_NEAR(loss, std::log(50257.0), 0.1);
  EXPECT_LT(run.budget.peak()[MemoryTag::activations],
            Bytes{33} << 20);  // not the 80 MB of all logits and gradients
  // Each row of dlogits sums to 0, so the shift of every final norm feature sees the table's rows alone;
  // check the table's gradient by one directional derivative along the gradient itself.
  HoldingHooks::Unit& embedding = run.hooks.units[0];
  std::vector<float> direction(embedding.layout.numel);
  double squared = 0;
  for (std::uint64_t i = 0; i < direction.size(); ++i) {
    direction[i] = run.hooks.gradient_at(0, i);
    squared += static_cast<double>(direction[i]) * static_cast<double>(direction[i]);
  }
  const float step = static_cast<float>(0.02 / std::sqrt(squared));
  for (std::size_t i = 0; i < direction.size(); ++i) embedding.master[i] += step * direction[i];
  run.hooks.publish();
  const double above = run.evaluate(tokens);
  for (std::size_t i = 0; i < direction.size(); ++i) embedding.master[i] -= 2 * step * direction[i];
  run.hooks.publish();
  const double below = run.evaluate(tokens);
  EXPECT_NEAR((above - below) / (2 * static_cast<double>(step)), squared, 0.02 * squared);
}

}  // namespace
}  // namespace headrace::testing
