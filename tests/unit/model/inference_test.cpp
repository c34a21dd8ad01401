// Token by token, with keys and values kept: the logits are those of a full forward at every position.
#include <gtest/gtest.h>

#include <cmath>

#include "headrace/errors.h"
#include "headrace/inference.h"
#include "tests/unit/model/model_harness.h"

namespace headrace::testing {
namespace {

ModelConfig config_of(ModelFamily family, bool tied) {
  ModelConfig config{.name = "small",
                     .family = family,
                     .layers = 2,
                     .width = 48,
                     .heads = 3,
                     .vocabulary = 67,
                     .max_positions = 160,
                     .tied_embedding = tied};
  if (family == ModelFamily::llama)
    config.heads = 6, config.key_heads = 2, config.head_width = 16, config.mlp_width = 100;
  return config;
}

// The logits of position p of sequence s, as a caller gets them.
using Logits = std::vector<std::vector<std::vector<float>>>;

class InferenceRun {
 public:
  InferenceRun(const ModelConfig& config, const InferenceOptions& options, int threads = 2)
      : parameters(config, {.dtype = options.dtype, .batch = 1, .sequence = 1}, threads),
        options_(options),
        inference(make_inference(config, options)) {
    Model::Context context{.device = parameters.device.get(),
                           .memory = &parameters.memory,
                           .hooks = &parameters.hooks,
                           .ops = parameters.ops.get(),
                           .units = {},
                           .layouts = {}};
    for (const HoldingHooks::Unit& unit : parameters.hooks.units) {
      context.units.push_back(static_cast<UnitId>(context.units.size()));
      context.layouts.push_back(&unit.layout);
    }
    inference->bind(std::move(context));
    logits.resize(static_cast<std::size_t>(options.batch));
  }

  // Tokens [first, first + count) of each of the sequences.
  void append(const std::vector<std::vector<std::int32_t>>& sequences, std::size_t first, std::size_t count,
              Inference::Logits which = Inference::Logits::all) {
    std::vector<std::int32_t> tokens;
    for (const std::vector<std::int32_t>& one : sequences)
      tokens.insert(tokens.end(), one.begin() + static_cast<std::ptrdiff_t>(first),
                    one.begin() + static_cast<std::ptrdiff_t>(first + count));
    inference->append(tokens, which, [&](int sequence, int position, std::span<const float> row) {
      std::vector<std::vector<float>>& mine = logits[static_cast<std::size_t>(sequence)];
      if (mine.size() <= static_cast<std::size_t>(position))
        mine.resize(static_cast<std::size_t>(position) + 1);
      mine[static_cast<std::size_t>(position)].assign(row.begin(), row.end());
    });
  }

  ModelRun parameters;
  InferenceOptions options_;
  std::unique_ptr<Inference> inference;
  Logits logits;
};

std::vector<std::vector<std::int32_t>> random_sequences(int batch, int length, int vocabulary) {
  std::vector<std::vector<std::int32_t>> all(static_cast<std::size_t>(batch));
  for (std::size_t s = 0; s < all.size(); ++s)
    for (std::uint64_t p = 0; p < static_cast<std::uint64_t>(length); ++p)
      all[s].push_back(
          static_cast<std::int32_t>(splitmix64((s << 32) + p) % static_cast<std::uint64_t>(vocabulary)));
  return all;
}

// The loss of training, whose code shares neither cache nor head with inference, from the logits.
double loss_of(const Logits& logits, const std::vector<std::vector<std::int32_t>>& sequences,
               std::size_t length) {
  double sum = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s)
    for (std::size_t p = 0; p < length; ++p) {
      double total = 0;
      for (const float x : logits[s][p]) total += std::exp(static_cast<double>(x));
      sum +=
          std::log(total) - static_cast<double>(logits[s][p][static_cast<std::size_t>(sequences[s][p + 1])]);
    }
  return sum / static_cast<double>(sequences.size() * length);
}

class InferenceOfFamily : public ::testing::TestWithParam<std::tuple<ModelFamily, bool>> {
 protected:
  ModelConfig config() const { return config_of(std::get<0>(GetParam()), std::get<1>(GetParam())); }

  // As many tokens at a time as `pieces` says, against all at once without anything kept before.
  void expect_full_forward(const InferenceOptions& options, const std::vector<std::size_t>& pieces,
                           double tolerance) {
    std::size_t length = 0;
    for (const std::size_t piece : pieces) length += piece;
    const auto sequences = random_sequences(options.batch, static_cast<int>(length), config().vocabulary);
    InferenceRun whole(config(), options), parts(config(), options);
    whole.append(sequences, 0, length);
    for (std::size_t first = 0; const std::size_t piece : pieces) {
      parts.append(sequences, first, piece);
      first += piece;
    }
    EXPECT_EQ(parts.inference->used_positions(), static_cast<int>(length));
    for (std::size_t s = 0; s < sequences.size(); ++s)
      for (std::size_t p = 0; p < length; ++p)
        for (std::size_t id = 0; id < whole.logits[s][p].size(); ++id)
          ASSERT_NEAR(parts.logits[s][p][id], whole.logits[s][p][id], tolerance)
              << "sequence " << s << " position " << p << " id " << id;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, InferenceOfFamily,
                         ::testing::Combine(::testing::Values(ModelFamily::gpt2, ModelFamily::llama),
                                            ::testing::Bool()),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param) == ModelFamily::gpt2 ? "gpt2"
                                                                                            : "llama") +
                                  (std::get<1>(param.param) ? "_tied" : "_untied");
                         });

TEST_P(InferenceOfFamily, a_full_forward_gives_the_loss_of_training) {
  for (const int batch : {1, 3}) {
    const int length = 37;
    const auto sequences = random_sequences(batch, length + 1, config().vocabulary);
    InferenceRun run(config(), {.batch = batch, .positions = length});
    run.append(sequences, 0, static_cast<std::size_t>(length));
    ModelRun training(config(), {.dtype = DType::f32, .batch = batch, .sequence = length});
    std::vector<std::int32_t> tokens;
    for (const auto& one : sequences) tokens.insert(tokens.end(), one.begin(), one.end());
    EXPECT_NEAR(loss_of(run.logits, sequences, length), static_cast<double>(training.evaluate(tokens)), 2e-6);
  }
}

TEST_P(InferenceOfFamily, one_token_at_a_time_gives_the_logits_of_a_full_forward_until_the_cache_is_full) {
  expect_full_forward({.batch = 1, .positions = 67}, std::vector<std::size_t>(67, 1), 2e-6);
  expect_full_forward({.batch = 1, .positions = 64}, std::vector<std::size_t>(64, 1), 2e-6);
}

TEST_P(InferenceOfFamily, so_do_a_prompt_and_then_one_token_at_a_time_of_several_sequences) {
  std::vector<std::size_t> pieces{13};
  pieces.resize(20, 1);
  expect_full_forward({.batch = 3, .positions = 40}, pieces, 2e-6);
}

TEST_P(InferenceOfFamily, so_do_pieces_of_odd_lengths_across_tiles_to_the_last_position_of_the_model) {
  expect_full_forward({.batch = 2, .positions = 160}, {63, 2, 1, 65, 1, 28}, 2e-6);
}

TEST_P(InferenceOfFamily, a_prompt_that_is_taken_in_several_passes_gives_the_same_logits) {
  expect_full_forward({.batch = 2, .positions = 131, .tokens_at_once = 50}, {130, 1}, 2e-6);
}

TEST_P(InferenceOfFamily, types_of_16_bits_differ_by_their_roundings) {
  expect_full_forward({.dtype = DType::bf16, .batch = 2, .positions = 40}, {30, 1, 1, 1, 1}, 2e-2);
  expect_full_forward({.dtype = DType::f16, .batch = 2, .positions = 40}, {30, 1, 1, 1, 1}, 3e-3);
}

TEST_P(InferenceOfFamily, the_last_logits_alone_are_the_last_of_all) {
  const auto sequences = random_sequences(3, 21, config().vocabulary);
  InferenceRun all(config(), {.batch = 3, .positions = 30}), last(config(), {.batch = 3, .positions = 30});
  all.append(sequences, 0, 21);
  last.append(sequences, 0, 21, Inference::Logits::last);
  for (std::size_t s = 0; s < 3; ++s) {
    ASSERT_EQ(last.logits[s].size(), 21u);
    EXPECT_TRUE(last.logits[s][0].empty());
    for (std::size_t id = 0; id < last.logits[s][20].size(); ++id)
      EXPECT_NEAR(last.logits[s][20][id], all.logits[s][20][id], 1e-6);
  }
}

TEST_P(InferenceOfFamily, the_number_of_threads_changes_no_bit) {
  const auto sequences = random_sequences(2, 40, config().vocabulary);
  std::vector<Logits> results;
  for (const int threads : {1, 3}) {
    InferenceRun run(config(), {.batch = 2, .positions = 40}, threads);
    run.append(sequences, 0, 38);
    run.append(sequences, 38, 1);
    run.append(sequences, 39, 1);
    results.push_back(run.logits);
  }
  EXPECT_TRUE(results[0] == results[1]);
}

// Run at exactly what was measured: more would throw.
TEST_P(InferenceOfFamily, measured_memory_is_what_a_run_takes) {
  for (const auto which : {Inference::Logits::all, Inference::Logits::last}) {
    const InferenceOptions options{.batch = 2, .positions = 100, .tokens_at_once = 32};
    const TagBytes measured = measure_inference_memory(config(), options, 45, which, make_cpu_ops, 2);
    const auto sequences = random_sequences(2, 100, config().vocabulary);
    InferenceRun run(config(), options);
    run.append(sequences, 0, 45, which);
    for (std::size_t p = 45; p < 100; ++p) run.append(sequences, p, 1, which);
    EXPECT_EQ(run.parameters.budget.peak().bytes, measured.bytes);
    EXPECT_GT(measured[MemoryTag::activations], key_value_cache_bytes(config(), options));
  }
}

TEST(Inference, the_cache_of_shared_heads_holds_these_alone) {
  const ModelConfig llama = config_of(ModelFamily::llama, true), gpt2 = config_of(ModelFamily::gpt2, true);
  // Two layers, 128 rows of room for 100, keys and values, fp32.
  EXPECT_EQ(key_value_cache_bytes(gpt2, {.batch = 3, .positions = 100}), 2u * 3 * 128 * 2 * 48 * 4);
  EXPECT_EQ(key_value_cache_bytes(llama, {.batch = 3, .positions = 100}), 2u * 3 * 128 * 2 * 32 * 4);
}

TEST(Inference, more_positions_than_the_model_has_are_refused) {
  const ModelConfig config = config_of(ModelFamily::gpt2, true);
  EXPECT_THROW(make_inference(config, {.positions = 161}), UsageError);
  EXPECT_NO_THROW(make_inference(config, {.positions = 160}));
}

}  // namespace
}  // namespace headrace::testing
