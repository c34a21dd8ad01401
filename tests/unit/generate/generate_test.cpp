// Token ids from weights that are known: what ends a sequence, what a limit of memory says, what is drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "headrace/errors.h"
#include "headrace/generate.h"
#include "headrace/splitmix.h"
#include "headrace/state_hash.h"

namespace headrace {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Ended = GeneratedSequence::Ended;

ModelConfig small(ModelFamily family = ModelFamily::llama) {
  ModelConfig config{.name = "small",
                     .family = family,
                     .layers = 2,
                     .width = 32,
                     .heads = 4,
                     .vocabulary = 50,
                     .max_positions = 40};
  if (family == ModelFamily::llama) config.key_heads = 2, config.mlp_width = 64;
  return config;
}

class HashedWeights final : public WeightSource {
 public:
  explicit HashedWeights(ModelConfig config) { facts_.config = std::move(config); }
  const WeightFacts& facts() const override { return facts_; }
  void read(const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) override {
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      const std::uint64_t bits = splitmix64(hash_bytes(parameter.name) + first + i) >> 40;
      out[i] = (static_cast<float>(bits) * 0x1p-24f - 0.5f) * amplitude + parameter.initial_mean;
    }
    ++reads;
  }
  float amplitude = 1.0f;
  int reads = 0;
  WeightFacts facts_;
};

GenerateOptions greedy(int max_tokens) {
  return {.prompt = {3, 14, 15, 9, 2}, .max_tokens = max_tokens, .sampling = {.temperature = 0}, .dtype = {}};
}

std::vector<std::int32_t> tokens_of(const GenerateOptions& options, const ModelConfig& config = small()) {
  HashedWeights weights(config);
  return generate(weights, options, {}).sequences.at(0).tokens;
}

TEST(Generate, every_token_is_the_likeliest_behind_all_before_it) {
  for (const ModelFamily family : {ModelFamily::gpt2, ModelFamily::llama}) {
    std::vector<std::int32_t> text = greedy(0).prompt;
    const std::vector<std::int32_t> all = tokens_of(greedy(12), small(family));
    ASSERT_EQ(all.size(), 12u);
    for (const std::int32_t token : all) {  // each of them as the first one behind a longer prompt
      GenerateOptions one = greedy(1);
      one.prompt = text;
      EXPECT_EQ(tokens_of(one, small(family)), std::vector{token});
      text.push_back(token);
    }
  }
}

TEST(Generate, it_ends_after_the_tokens_that_were_asked_for) {
  HashedWeights weights(small());
  const GenerateReport report = generate(weights, greedy(7), {});
  EXPECT_EQ(report.sequences[0].tokens.size(), 7u);
  EXPECT_EQ(report.sequences[0].ended, Ended::length);
  EXPECT_EQ(report.positions, 11);  // the last token is drawn and not read
}

TEST(Generate, it_ends_where_the_model_has_no_more_positions) {
  HashedWeights weights(small());
  const GenerateReport report = generate(weights, greedy(1000), {});
  EXPECT_EQ(report.sequences[0].ended, Ended::positions);
  EXPECT_EQ(report.sequences[0].tokens.size(), 40u - 5 + 1);
  EXPECT_EQ(report.positions, 40);
}

TEST(Generate, a_prompt_that_fills_all_positions_is_followed_by_one_token) {
  HashedWeights weights(small());
  GenerateOptions options = greedy(10);
  options.prompt.assign(40, 7);
  const GenerateReport report = generate(weights, options, {});
  EXPECT_EQ(report.sequences[0].tokens.size(), 1u);
  EXPECT_EQ(report.sequences[0].ended, Ended::positions);
  options.prompt.push_back(7);
  EXPECT_THROW(generate(weights, options, {}), UsageError);
}

TEST(Generate, it_ends_at_an_end_token_unless_it_goes_on_behind_them) {
  const std::vector<std::int32_t> all = tokens_of(greedy(12));
  ModelConfig config = small();
  config.end_tokens = {49, all[4]};
  const auto first = std::ranges::find(all, all[4]);
  HashedWeights weights(config);
  GenerateOptions options = greedy(12);
  const GenerateReport report = generate(weights, options, {});
  EXPECT_EQ(report.sequences[0].ended, Ended::end_token);
  EXPECT_EQ(report.sequences[0].tokens, std::vector<std::int32_t>(all.begin(), first + 1));
  options.stops_at_end = false;
  EXPECT_EQ(tokens_of(options, config), all);
}

TEST(Generate, sequences_are_drawn_apart_and_end_apart) {
  GenerateOptions options = greedy(20);
  options.sampling.temperature = 1, options.count = 5;
  ModelConfig config = small();
  HashedWeights free(config);
  free.amplitude = 0.3f;
  const GenerateReport without = generate(free, options, {});
  for (std::size_t s = 1; s < 5; ++s) EXPECT_NE(without.sequences[s].tokens, without.sequences[0].tokens);
  config.end_tokens = {without.sequences[2].tokens[3]};
  HashedWeights ending(config);
  ending.amplitude = 0.3f;
  const GenerateReport with = generate(ending, options, {});
  for (std::size_t s = 0; s < 5; ++s) {
    const auto& all = without.sequences[s].tokens;
    const auto end = std::ranges::find(all, config.end_tokens[0]);
    EXPECT_EQ(with.sequences[s].tokens,
              std::vector<std::int32_t>(all.begin(), end == all.end() ? end : end + 1));
    EXPECT_EQ(with.sequences[s].ended, end == all.end() ? Ended::length : Ended::end_token);
  }
}

TEST(Generate, the_seed_says_what_is_drawn) {
  GenerateOptions options = greedy(20);
  options.sampling = {.temperature = 1, .seed = 5};
  const std::vector<std::int32_t> first = tokens_of(options);
  EXPECT_EQ(tokens_of(options), first);
  options.threads = 1;
  EXPECT_EQ(tokens_of(options), first);
  options.sampling.seed = 6;
  EXPECT_NE(tokens_of(options), first);
}

TEST(Generate, only_ids_that_may_be_drawn_are) {
  GenerateOptions options = greedy(30);
  options.sampling = {.temperature = 5, .seed = 1};
  options.drawn_ids = 10;
  EXPECT_THAT(tokens_of(options), Each(::testing::Lt(10)));
}

TEST(Generate, logits_of_every_position_are_told_in_order_and_once) {
  HashedWeights weights(small());
  GenerateOptions options = greedy(6);
  options.prompt.resize(30, 8), options.all_logits = true;
  std::vector<int> positions;
  std::vector<std::int32_t> likeliest;
  const GenerateReport report =
      generate(weights, options, {.logits = [&](int position, std::span<const float> row) {
                 positions.push_back(position);
                 ASSERT_EQ(row.size(), 50u);
                 likeliest.push_back(static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin()));
               }});
  std::vector<int> expected(35);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(positions, expected);
  EXPECT_EQ(std::vector(likeliest.begin() + 29, likeliest.end()), report.sequences[0].tokens);
}

TEST(Generate, no_tokens_are_the_prompts_logits_alone) {
  HashedWeights weights(small());
  GenerateOptions options = greedy(0);
  options.all_logits = true;
  int rows = 0;
  const GenerateReport report =
      generate(weights, options, {.logits = [&](int, std::span<const float>) { ++rows; }});
  EXPECT_EQ(rows, 5);
  EXPECT_TRUE(report.sequences[0].tokens.empty());
}

TEST(Generate, a_stop_keeps_what_was_drawn) {
  HashedWeights weights(small());
  int drawn = 0;
  const GenerateReport report =
      generate(weights, greedy(30),
               {.token = [&](int, std::int32_t) { ++drawn; }, .stop_requested = [&] { return drawn == 4; }});
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.sequences[0].tokens.size(), 4u);
  EXPECT_EQ(report.sequences[0].ended, Ended::stopped);
}

TEST(Generate, a_stop_while_weights_are_read_reads_no_more) {
  HashedWeights weights(small());
  const GenerateReport report =
      generate(weights, greedy(30), {.stop_requested = [&] { return weights.reads == 3; }});
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(weights.reads, 3);
  EXPECT_TRUE(report.sequences.empty());
}

std::string refusal(const GenerateOptions& options) {
  HashedWeights weights(small());
  try {
    generate(weights, options, {});
  } catch (const DoesNotFit& error) {
    EXPECT_EQ(weights.reads, 0);
    return error.what();
  }
  return "";
}

TEST(Generate, what_does_not_fit_is_refused_before_weights_are_read_and_says_what_does) {
  GenerateOptions options = greedy(30);
  HashedWeights weights(small());
  const Bytes needed = generate(weights, options, {}).device_bytes;
  options.device_memory_bytes = needed;
  EXPECT_EQ(refusal(options), "");
  options.device_memory_bytes = needed - 1;
  EXPECT_THAT(refusal(options), HasSubstr("weights in fp32"));
  EXPECT_THAT(refusal(options), HasSubstr("34 positions of 1 sequence"));
  EXPECT_THAT(refusal(options), HasSubstr("--dtype bf16"));
  options.count = 3;
  EXPECT_THAT(refusal(options), HasSubstr("smaller --count"));
}

TEST(Generate, the_number_of_tokens_that_is_said_to_fit_does) {
  ModelConfig config = small();
  config.max_positions = 4096;
  HashedWeights weights(config);
  GenerateOptions options = greedy(4000);
  options.device_memory_bytes = 1 << 20;
  try {
    generate(weights, options, {});
    FAIL() << "it fits";
  } catch (const DoesNotFit& error) {
    const std::string text = error.what();
    const std::size_t at = text.find("--max-tokens ");
    ASSERT_NE(at, std::string::npos) << text;
    options.max_tokens = std::stoi(text.substr(at + 13));
  }
  ASSERT_GT(options.max_tokens, 64);
  int drawn = 0;
  EXPECT_NO_THROW(
      generate(weights, options,
               {.token = [&](int, std::int32_t) { ++drawn; }, .stop_requested = [&] { return drawn > 2; }}));
}

TEST(Generate, ids_outside_the_vocabulary_and_an_empty_prompt_are_refused) {
  GenerateOptions options = greedy(1);
  options.prompt = {3, 50};
  HashedWeights weights(small());
  EXPECT_THROW(generate(weights, options, {}), UsageError);
  options.prompt.clear();
  EXPECT_THROW(generate(weights, options, {}), UsageError);
}

TEST(Generate, lost_weights_are_an_error) {
  HashedWeights weights(small());
  weights.amplitude = std::nanf("");
  EXPECT_THROW(generate(weights, greedy(1), {}), Error);
}

}  // namespace
}  // namespace headrace
