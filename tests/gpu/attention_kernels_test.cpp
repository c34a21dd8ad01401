// Causal attention on a CUDA device against its definition in double.
#include "gpu/attention_kernels.h"

#include <cmath>

#include "gpu/gpu_harness.h"

namespace headrace::test {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();  // where results must be written

std::int64_t depth_of(const AttentionShape& s) {
  return s.width / s.heads;
}
std::size_t rows_of(const AttentionShape& s) {
  return static_cast<std::size_t>(s.batch * s.sequence);
}

std::string describe(const AttentionShape& s) {
  return fmt::format("batch {} sequence {} heads {} of {} depth {} {}", s.batch, s.sequence, s.heads,
                     s.key_heads, depth_of(s), name_of(s.dtype));
}

// ---- the definition, for one head of one sample

// Element d of row `row` of the query, key or value (0, 1, 2) of a query head in qkv, or of its output.
struct HeadOf {
  AttentionShape shape;
  std::int64_t sample, head;
  std::size_t qkv(int part, std::int64_t row, std::int64_t d) const {
    const std::int64_t shared = head / (shape.heads / shape.key_heads);
    const std::int64_t column = part == 0 ? head : shape.heads + (part - 1) * shape.key_heads + shared;
    return static_cast<std::size_t>((sample * shape.sequence + row) * shape.qkv_width() +
                                    column * depth_of(shape) + d);
  }
  std::size_t output(std::int64_t row, std::int64_t d) const {
    return static_cast<std::size_t>((sample * shape.sequence + row) * shape.width + head * depth_of(shape) +
                                    d);
  }
  std::size_t log_sum(std::int64_t row) const {
    return static_cast<std::size_t>((sample * shape.heads + head) * shape.sequence + row);
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(depth_of(shape))); }
};

template <class Body>
void for_each_head(const AttentionShape& shape, Body&& body) {
  for (std::int64_t sample = 0; sample < shape.batch; ++sample)
    for (std::int64_t head = 0; head < shape.heads; ++head) body(HeadOf{shape, sample, head});
}

// Scores of query q with the keys that it sees.
std::vector<double> scores_of(const HeadOf& head, const std::vector<float>& qkv, std::int64_t q) {
  std::vector<double> scores;
  for (std::int64_t k = 0; k <= q; ++k) {
    double sum = 0;
    for (std::int64_t d = 0; d < depth_of(head.shape); ++d)
      sum += static_cast<double>(qkv[head.qkv(0, q, d)]) * static_cast<double>(qkv[head.qkv(1, k, d)]);
    scores.push_back(sum * head.scale());
  }
  return scores;
}

double log_sum_of(const std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  return largest + std::log(sum);
}

struct Forward {
  std::vector<double> output, log_sums;
};
Forward plain_attention(const AttentionShape& shape, const std::vector<float>& qkv) {
  Forward plain{std::vector<double>(rows_of(shape) * static_cast<std::size_t>(shape.width)),
                std::vector<double>(rows_of(shape) * static_cast<std::size_t>(shape.heads))};
  for_each_head(shape, [&](const HeadOf& head) {
    for (std::int64_t q = 0; q < shape.sequence; ++q) {
      const std::vector<double> scores = scores_of(head, qkv, q);
      const double log_sum = plain.log_sums[head.log_sum(q)] = log_sum_of(scores);
      for (std::int64_t k = 0; k <= q; ++k)
        for (std::int64_t d = 0; d < depth_of(shape); ++d)
          plain.output[head.output(q, d)] += std::exp(scores[static_cast<std::size_t>(k)] - log_sum) *
                                             static_cast<double>(qkv[head.qkv(2, k, d)]);
    }
  });
  return plain;
}

// Gradients of sum(output * doutput).
std::vector<double> plain_attention_backward(const AttentionShape& shape, const std::vector<float>& qkv,
                                             const std::vector<float>& doutput) {
  std::vector<double> dqkv(qkv.size());
  for_each_head(shape, [&](const HeadOf& head) {
    for (std::int64_t q = 0; q < shape.sequence; ++q) {
      std::vector<double> weights = scores_of(head, qkv, q), dweights;
      const double log_sum = log_sum_of(weights);
      double dot = 0;
      for (std::int64_t k = 0; k <= q; ++k) {
        double& weight = weights[static_cast<std::size_t>(k)];
        weight = std::exp(weight - log_sum);
        double dweight = 0;
        for (std::int64_t d = 0; d < depth_of(shape); ++d) {
          const double dout = static_cast<double>(doutput[head.output(q, d)]);
          dweight += dout * static_cast<double>(qkv[head.qkv(2, k, d)]);
          dqkv[head.qkv(2, k, d)] += weight * dout;
        }
        dweights.push_back(dweight);
        dot += weight * dweight;
      }
      for (std::int64_t k = 0; k <= q; ++k) {
        const auto at = static_cast<std::size_t>(k);
        const double dscore = weights[at] * (dweights[at] - dot) * head.scale();
        for (std::int64_t d = 0; d < depth_of(shape); ++d) {
          dqkv[head.qkv(0, q, d)] += dscore * static_cast<double>(qkv[head.qkv(1, k, d)]);
          dqkv[head.qkv(1, k, d)] += dscore * static_cast<double>(qkv[head.qkv(0, q, d)]);
        }
      }
    }
  });
  return dqkv;
}

TEST(PlainAttention, its_gradients_are_the_differences_of_its_output) {
  const AttentionShape shape{.batch = 2, .sequence = 4, .heads = 2, .width = 6};
  std::vector<float> qkv = ordinary(rows_of(shape) * 18, 1);
  const std::vector<float> doutput = ordinary(rows_of(shape) * 6, 2);
  const std::vector<double> gradient = plain_attention_backward(shape, qkv, doutput);
  const auto value = [&] {
    const std::vector<double> output = plain_attention(shape, qkv).output;
    double sum = 0;
    for (std::size_t i = 0; i < output.size(); ++i) sum += output[i] * static_cast<double>(doutput[i]);
    return sum;
  };
  constexpr float step = 0x1p-10f;
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const float before = qkv[i];
    qkv[i] = before + step;
    const double above = value(), wider = static_cast<double>(qkv[i]);
    qkv[i] = before - step;
    EXPECT_NEAR(gradient[i], (above - value()) / (wider - static_cast<double>(qkv[i])), 1e-5) << i;
    qkv[i] = before;
  }
}

// ---- the kernels

struct Results {
  std::vector<float> output, log_sums, dqkv;
};

class AttentionKernels : public GpuTest {
 protected:
  // Forward and backward, operands `offset` elements beside an aligned address.
  Results attend(const AttentionShape& shape, const std::vector<float>& qkv,
                 const std::vector<float>& doutput, std::size_t offset = 0) {
    const std::size_t at = offset * size_of(shape.dtype), log_sums_numel = doutput.size() / depth_of_(shape);
    const Operand input(*device, shape.dtype, qkv, at), dout(*device, shape.dtype, doutput, at);
    const Operand output(*device, shape.dtype, std::vector<float>(doutput.size(), poison), at);
    const Operand log_sums(*device, std::vector<float>(log_sums_numel, poison), offset * sizeof(float));
    const Operand dqkv(*device, shape.dtype, std::vector<float>(qkv.size(), poison), at);
    EXPECT_EQ(attention_backward_scratch_bytes(shape), log_sums_numel * sizeof(float));
    const Operand scratch(*device, std::vector<float>(log_sums_numel, poison), offset * sizeof(float));
    attention(queue(), shape, input.data(), output.data(), log_sums.data<float>());
    attention_backward(queue(), {.shape = shape,
                                 .qkv = input.data(),
                                 .output = output.data(),
                                 .doutput = dout.data(),
                                 .log_sums = log_sums.data<float>(),
                                 .dqkv = dqkv.data(),
                                 .scratch = scratch.data<float>()});
    return {output.values_of(shape.dtype), log_sums.values<float>(), dqkv.values_of(shape.dtype)};
  }

  void expect_the_definition(AttentionShape shape, float amplitude = 1.0f) {
    SCOPED_TRACE(describe(shape));
    const std::size_t numel = rows_of(shape) * static_cast<std::size_t>(shape.width);
    const std::size_t qkv_numel = rows_of(shape) * static_cast<std::size_t>(shape.qkv_width());
    const std::vector<float> qkv = rounded(shape.dtype, ordinary(qkv_numel, 1, amplitude));
    const std::vector<float> doutput = rounded(shape.dtype, ordinary(numel, 2));
    const Results actual = attend(shape, qkv, doutput);
    const Forward plain = plain_attention(shape, qkv);
    expect_near(shape.dtype, actual.output, plain.output, 1e-5, "output");
    expect_near(DType::f32, actual.log_sums, plain.log_sums, 1e-5, "log sum");
    // The output that backward is given was rounded, which its dots feel.
    expect_near(shape.dtype, actual.dqkv, plain_attention_backward(shape, qkv, doutput),
                shape.dtype == DType::f32 ? 3e-5 : 2e-2, "dqkv");
  }

  static void expect_near(DType dtype, const std::vector<float>& actual, const std::vector<double>& expected,
                          double fp32_error, const char* what) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance(dtype, expected[i], fp32_error))
          << what << " " << i;
  }

 private:
  static std::size_t depth_of_(const AttentionShape& shape) {
    return static_cast<std::size_t>(depth_of(shape));
  }
};

TEST_F(AttentionKernels, output_log_sums_and_gradients_are_those_of_the_definition) {
  int number = 0;
  for (const std::int64_t depth : {1, 8, 33, 64, 128})
    for (const std::int64_t sequence : {1, 2, 63, 64, 65, 130}) {
      const std::int64_t batch = sequence % 2 == 1 ? 3 : 1, heads = sequence == 130 || depth == 128 ? 1 : 2;
      expect_the_definition({batch, sequence, heads, heads * depth, element_types[number++ % 3]});
    }
}

TEST_F(AttentionKernels, heads_of_up_to_256_elements_are_those_of_the_definition) {
  expect_the_definition({1, 65, 2, 2 * 129, DType::f32});
  expect_the_definition({2, 33, 1, 256, DType::bf16});
}

TEST_F(AttentionKernels, many_heads_of_several_samples_are_those_of_the_definition) {
  expect_the_definition({3, 66, 5, 5 * 12, DType::f32});
}

TEST_F(AttentionKernels, heads_that_share_keys_and_values_are_those_of_the_definition) {
  expect_the_definition({2, 67, 6, 6 * 16, DType::f32, 2});
  expect_the_definition({1, 130, 4, 4 * 33, DType::bf16, 1});
  expect_the_definition({1, 65, 4, 4 * 64, DType::f16, 2});
}

TEST_F(AttentionKernels, large_scores_neither_overflow_nor_lose_the_largest) {
  const AttentionShape shape{1, 70, 2, 64, DType::f32};
  const std::vector<float> qkv = ordinary(rows_of(shape) * 192, 1, 100.0f);  // scores of some 10^4
  const Results actual = attend(shape, qkv, ordinary(rows_of(shape) * 64, 2));
  const Forward plain = plain_attention(shape, qkv);
  for (std::size_t i = 0; i < actual.output.size(); ++i)
    ASSERT_NEAR(static_cast<double>(actual.output[i]), plain.output[i], 2.0) << i;
  for (std::size_t i = 0; i < actual.log_sums.size(); ++i)
    ASSERT_NEAR(static_cast<double>(actual.log_sums[i]), plain.log_sums[i], 0.1) << i;
  for (const float x : actual.dqkv) ASSERT_TRUE(std::isfinite(x));
}

TEST_F(AttentionKernels, bits_do_not_depend_on_alignment_or_on_other_samples) {
  const AttentionShape both{.batch = 2, .sequence = 67, .heads = 2, .width = 40};
  for (const DType dtype : element_types) {
    AttentionShape shape = both;
    shape.dtype = dtype;
    const std::vector<float> qkv = ordinary(rows_of(shape) * 120, 1),
                             doutput = ordinary(rows_of(shape) * 40, 2);
    const Results once = attend(shape, qkv, doutput), beside = attend(shape, qkv, doutput, 1);
    EXPECT_EQ(once.output, beside.output);
    EXPECT_EQ(once.log_sums, beside.log_sums);
    EXPECT_EQ(once.dqkv, beside.dqkv);
    shape.batch = 1;
    const Results alone =
        attend(shape, {qkv.begin(), qkv.begin() + 67 * 120}, {doutput.begin(), doutput.begin() + 67 * 40});
    EXPECT_TRUE(std::equal(alone.output.begin(), alone.output.end(), once.output.begin()));
    EXPECT_TRUE(std::equal(alone.dqkv.begin(), alone.dqkv.end(), once.dqkv.begin()));
  }
}

TEST_F(AttentionKernels, no_query_sees_a_later_token) {
  const AttentionShape shape{1, 130, 1, 32, DType::f32};
  const std::vector<float> doutput(rows_of(shape) * 32, 1.0f);
  std::vector<float> qkv = ordinary(rows_of(shape) * 96, 1);
  const Results before = attend(shape, qkv, doutput);
  constexpr std::int64_t changed = 77;
  for (std::size_t i = changed * 96; i < qkv.size(); ++i) qkv[i] = -3.0f * qkv[i];
  const Results after = attend(shape, qkv, doutput);
  EXPECT_TRUE(std::equal(before.output.begin(), before.output.begin() + changed * 32, after.output.begin()));
  EXPECT_NE(before.output[changed * 32], after.output[changed * 32]);
}

TEST_F(AttentionKernels, what_is_no_number_stays_so_in_all_that_depends_on_it) {
  const AttentionShape shape{1, 70, 2, 16, DType::f32};
  std::vector<float> qkv = ordinary(rows_of(shape) * 48, 1);
  qkv[66 * 48 + 16] = poison;  // in the key of token 66, first head
  const Results actual = attend(shape, qkv, std::vector<float>(rows_of(shape) * 16, 1.0f));
  for (std::size_t row = 0; row < 70; ++row) {
    EXPECT_EQ(std::isnan(actual.output[row * 16]), row >= 66) << row;
    EXPECT_FALSE(std::isnan(actual.output[row * 16 + 8])) << row;
  }
  EXPECT_TRUE(std::isnan(actual.dqkv[66 * 48]));
}

}  // namespace
}  // namespace headrace::test
