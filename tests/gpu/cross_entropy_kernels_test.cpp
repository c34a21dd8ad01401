// Cross-entropy on a CUDA device against its definition in double.
#include "gpu/cross_entropy_kernels.h"

#include <cmath>

#include "gpu/token_batches.h"

namespace headrace::test {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();  // where results must be written

struct Results {
  std::vector<double> losses;
  std::vector<float> dlogits;
};

struct Rows {
  std::int64_t first, count;
};

double log_sum_of(const float* logits, std::int64_t vocabulary) {
  const double largest = static_cast<double>(*std::max_element(logits, logits + vocabulary));
  double sum = 0;
  for (std::int64_t i = 0; i < vocabulary; ++i) sum += std::exp(static_cast<double>(logits[i]) - largest);
  return largest + std::log(sum);
}

class CrossEntropyKernels : public GpuTest {
 protected:
  Results run(const Tokens& tokens, const Rows& rows, DType dtype, const std::vector<float>& logits,
              float factor) {
    const Operand ids(*device, tokens.ids), input(*device, logits, sizeof(float));
    const Operand losses(*device, std::vector<double>(static_cast<std::size_t>(tokens.rows()), -1.0));
    const Operand dlogits(*device, dtype, std::vector<float>(logits.size(), poison), size_of(dtype));
    CrossEntropyArguments arguments{.logits = input.data<float>(),
                                    .tokens = tokens.on(ids),
                                    .first_row = rows.first,
                                    .rows = rows.count,
                                    .losses = losses.data<double>(),
                                    .dlogits = dlogits.data(),
                                    .dtype = dtype,
                                    .gradient_factor = factor};
    cross_entropy(queue(), arguments);
    return {losses.values<double>(), dlogits.values_of(dtype)};
  }

  void expect_the_definition(const Tokens& tokens, const Rows& rows, DType dtype, float amplitude) {
    SCOPED_TRACE(fmt::format("vocabulary {} rows {} + {} {}", tokens.vocabulary, rows.first, rows.count,
                             name_of(dtype)));
    const std::vector<float> logits =
        ordinary(static_cast<std::size_t>(rows.count * tokens.vocabulary), 1, amplitude);
    constexpr float factor = 0.25f;
    const Results actual = run(tokens, rows, dtype, logits, factor);
    const double fp32_error = 2e-6 * (1 + static_cast<double>(amplitude));
    for (std::int64_t row = 0; row < tokens.rows(); ++row) {
      const double loss = actual.losses[static_cast<std::size_t>(row)];
      if (row < rows.first || row >= rows.first + rows.count) {
        ASSERT_EQ(loss, -1.0) << "a row that is not asked for";
        continue;
      }
      const std::int64_t start = (row - rows.first) * tokens.vocabulary;
      const double log_sum = log_sum_of(logits.data() + start, tokens.vocabulary);
      ASSERT_NEAR(loss,
                  log_sum - static_cast<double>(logits[static_cast<std::size_t>(start + tokens.target(row))]),
                  fp32_error * 4)
          << row;
      for (std::int64_t i = 0; i < tokens.vocabulary; ++i) {
        const auto at = static_cast<std::size_t>(start + i);
        const double probability = std::exp(static_cast<double>(logits[at]) - log_sum);
        const double expected =
            (probability - (i == tokens.target(row) ? 1 : 0)) * static_cast<double>(factor);
        ASSERT_NEAR(static_cast<double>(actual.dlogits[at]), expected, tolerance(dtype, expected, fp32_error))
            << row << " " << i;
      }
    }
  }
};

TEST_F(CrossEntropyKernels, losses_and_gradients_are_those_of_the_definition) {
  for (const DType dtype : element_types)
    for (const std::int64_t vocabulary : {1, 2, 255, 256, 257, 1023, 1025, 5003})
      expect_the_definition(random_tokens(1, 3, vocabulary), {0, 3}, dtype, 3.0f);
}

TEST_F(CrossEntropyKernels, any_part_of_the_rows_of_several_samples_can_be_asked_for) {
  for (const std::int64_t sequence : {1, 2, 63, 64, 65, 130}) {
    const Tokens tokens = random_tokens(3, sequence, 50);
    expect_the_definition(tokens, {0, tokens.rows()}, DType::f32, 1.0f);
    expect_the_definition(tokens, {sequence - 1, sequence + 2}, DType::bf16, 1.0f);
  }
}

TEST_F(CrossEntropyKernels, large_logits_do_not_overflow) {
  expect_the_definition(random_tokens(2, 5, 700), {0, 10}, DType::f32, 1e4f);
}

TEST_F(CrossEntropyKernels, minus_infinity_is_a_probability_of_zero_and_nan_is_told) {
  const Tokens tokens{1, 2, 300, {0, 3, 5}};
  std::vector<float> logits = ordinary(600, 1);
  for (std::size_t i = 6; i < 300; ++i) logits[i] = -std::numeric_limits<float>::infinity();
  logits[450] = poison;
  const Results actual = run(tokens, {0, 2}, DType::f32, logits, 1.0f);
  EXPECT_NEAR(actual.losses[0], log_sum_of(logits.data(), 6) - static_cast<double>(logits[3]), 1e-6);
  for (std::size_t i = 6; i < 300; ++i) EXPECT_EQ(actual.dlogits[i], 0.0f);
  EXPECT_TRUE(std::isnan(actual.losses[1]));
  EXPECT_TRUE(std::isnan(actual.dlogits[300]));
}

TEST_F(CrossEntropyKernels, losses_or_gradients_can_be_left_out) {
  const Tokens tokens = random_tokens(1, 4, 33);
  const std::vector<float> logits = ordinary(4 * 33, 1);
  const Results both = run(tokens, {0, 4}, DType::f32, logits, 1.0f);
  const Operand ids(*device, tokens.ids), input(*device, logits);
  const Operand losses(*device, std::vector<double>(4)), dlogits(*device, std::vector<float>(logits.size()));
  CrossEntropyArguments arguments{.logits = input.data<float>(), .tokens = tokens.on(ids), .rows = 4};
  arguments.losses = losses.data<double>();
  cross_entropy(queue(), arguments);
  arguments.losses = nullptr;
  arguments.dlogits = dlogits.data();
  cross_entropy(queue(), arguments);
  EXPECT_EQ(losses.values<double>(), both.losses);
  EXPECT_EQ(dlogits.values<float>(), both.dlogits);
}

TEST_F(CrossEntropyKernels, a_target_outside_the_vocabulary_gives_no_number_and_reads_nothing) {
  const Tokens tokens{1, 2, 9, {0, 9, -1}};
  const Results actual = run(tokens, {0, 2}, DType::f32, ordinary(18, 1), 1.0f);
  for (const double loss : actual.losses) EXPECT_TRUE(std::isnan(loss));
  for (const float x : actual.dlogits) EXPECT_GE(x, 0.0f);
}

}  // namespace
}  // namespace headrace::test
