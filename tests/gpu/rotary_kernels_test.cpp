// Rotary positions on a CUDA device against Hugging Face's formula in double.
#include "gpu/rotary_kernels.h"

#include <cmath>

#include "gpu/gpu_harness.h"

namespace headrace::test {
namespace {

struct Case {
  std::int64_t batch, sequence, heads, key_heads, depth;
  DType dtype;
  std::int64_t width() const { return (heads + 2 * key_heads) * depth; }
  std::size_t numel() const { return static_cast<std::size_t>(batch * sequence * width()); }
};

// x * cos + rotate_half(x) * sin, rotate_half(x) = (-second half, first half), for the heads of queries and
// keys.
std::vector<double> plain_rotary(const Case& c, const std::vector<float>& x, double theta, double direction) {
  std::vector<double> y(x.begin(), x.end());
  for (std::int64_t row = 0; row < c.batch * c.sequence; ++row)
    for (std::int64_t head = 0; head < c.heads + c.key_heads; ++head)
      for (std::int64_t i = 0; i < c.depth; ++i) {
        const std::int64_t half = c.depth / 2, start = row * c.width() + head * c.depth;
        const double frequency =
            std::pow(theta, -2.0 * static_cast<double>(i % half) / static_cast<double>(c.depth));
        const double angle = static_cast<double>(row % c.sequence) * frequency * direction;
        const double other = i < half ? -static_cast<double>(x[static_cast<std::size_t>(start + i + half)])
                                      : static_cast<double>(x[static_cast<std::size_t>(start + i - half)]);
        double& result = y[static_cast<std::size_t>(start + i)];
        result = result * std::cos(angle) + other * std::sin(angle);
      }
  return y;
}

class RotaryKernels : public GpuTest {
 protected:
  RotaryArguments arguments_of(const Case& c, const Operand& x, float theta) {
    return {.qkv = x.data(),
            .dtype = c.dtype,
            .batch = c.batch,
            .sequence = c.sequence,
            .heads = c.heads,
            .key_heads = c.key_heads,
            .depth = c.depth,
            .theta = theta};
  }
  void expect_the_formula(const Case& c, float theta) {
    SCOPED_TRACE(fmt::format("batch {} sequence {} heads {} + {} depth {} {}", c.batch, c.sequence, c.heads,
                             c.key_heads, c.depth, name_of(c.dtype)));
    const std::vector<float> values = rounded(c.dtype, ordinary(c.numel(), 1));
    const Operand forward(*device, c.dtype, values, size_of(c.dtype)), backward(*device, c.dtype, values);
    rotary(queue(), arguments_of(c, forward, theta));
    rotary_backward(queue(), arguments_of(c, backward, theta));
    for (const double direction : {1.0, -1.0}) {
      const std::vector<float> actual = (direction > 0 ? forward : backward).values_of(c.dtype);
      const std::vector<double> expected = plain_rotary(c, values, static_cast<double>(theta), direction);
      for (std::size_t i = 0; i < actual.size(); ++i)
        ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance(c.dtype, expected[i], 5e-5))
            << i << " direction " << direction;
    }
  }
};

TEST_F(RotaryKernels, queries_and_keys_are_turned_by_the_formula_and_back) {
  for (const DType dtype : element_types)
    for (const std::int64_t depth : {2, 8, 66, 128})
      for (const std::int64_t sequence : {1, 2, 65, 130})
        expect_the_formula({sequence == 65 ? 3 : 1, sequence, 4, depth == 8 ? 4 : 2, depth, dtype}, 10000.0f);
}

TEST_F(RotaryKernels, another_theta_turns_by_other_angles) {
  expect_the_formula({1, 130, 2, 1, 64, DType::f32}, 500000.0f);
}

TEST_F(RotaryKernels, values_and_the_first_position_keep_their_bits) {
  const Case c{2, 3, 3, 2, 6, DType::bf16};
  const std::vector<float> values = rounded(c.dtype, ordinary(c.numel(), 1));
  const Operand x(*device, c.dtype, values);
  rotary(queue(), arguments_of(c, x, 10000.0f));
  const std::vector<float> turned = x.values_of(c.dtype);
  for (std::size_t i = 0; i < turned.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / c.width(),
                       column = static_cast<std::int64_t>(i) % c.width();
    if (row % c.sequence == 0 || column >= (c.heads + c.key_heads) * c.depth) {
      EXPECT_EQ(turned[i], values[i]) << i;
    }
  }
}

TEST_F(RotaryKernels, backward_undoes_forward) {
  const Case c{1, 40, 2, 2, 32, DType::f32};
  const std::vector<float> values = ordinary(c.numel(), 1);
  const Operand x(*device, c.dtype, values);
  rotary(queue(), arguments_of(c, x, 10000.0f));
  rotary_backward(queue(), arguments_of(c, x, 10000.0f));
  const std::vector<float> back = x.values<float>();
  for (std::size_t i = 0; i < back.size(); ++i) EXPECT_NEAR(back[i], values[i], 2e-6f) << i;
}

}  // namespace
}  // namespace headrace::test
