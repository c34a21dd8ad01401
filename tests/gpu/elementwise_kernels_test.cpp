// Passes over elements and sums of columns on a CUDA device against the formulas in double.
#include "gpu/elementwise_kernels.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/gpu/gpu_harness.h"

namespace headrace::test {
namespace {

constexpr std::size_t numels[] = {0, 1, 7, 33, 1027, 20011};
constexpr float infinity = std::numeric_limits<float>::infinity();

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

constexpr double gelu_slope = 0.7978845608028654;  // sqrt(2 / pi)
double plain_gelu(double x) {
  return 0.5 * x * (1 + std::tanh(gelu_slope * (x + 0.044715 * x * x * x)));
}
double plain_gelu_derivative(double x) {
  const double t = std::tanh(gelu_slope * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_slope * (1 + 3 * 0.044715 * x * x);
}

class ElementwiseKernels : public GpuTest {
 protected:
  Matrix row(const Operand& x, DType dtype, std::size_t numel) {
    const auto columns = static_cast<std::int64_t>(numel);
    return {x.data(), dtype, 1, columns, columns};
  }
};

// Inputs of one pass, rounded to its type, and what it left in each of them.
using Arrays = std::vector<std::vector<float>>;
using Pass = std::function<void(const std::vector<Operand>&)>;

// Runs the pass over operands that lie on borders of 16 bytes, and over others whose bits must be the same.
Arrays run_pass(Device& device, DType dtype, const Arrays& arrays, const Pass& pass) {
  Arrays results[2];
  for (const bool aligned : {true, false}) {
    std::vector<Operand> operands;
    for (std::size_t k = 0; k < arrays.size(); ++k)
      operands.emplace_back(device, dtype, arrays[k], aligned ? 0 : (k + 1) * size_of(dtype));
    pass(operands);
    for (const Operand& operand : operands) results[aligned].push_back(operand.values_of(dtype));
  }
  for (std::size_t k = 0; k < arrays.size(); ++k)
    EXPECT_EQ(first_difference(results[0][k], results[1][k]), arrays[k].size()) << "depends on alignment";
  return results[1];
}

// Ordinary values, some large, each sign, and the borders of the formulas.
std::vector<float> inputs(std::size_t numel, std::uint32_t seed) {
  constexpr float special[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 90.0f, -90.0f, 1e19f, -1e19f, 3e38f, -3e38f};
  std::vector<float> values = ordinary(numel, seed, 3.0f);
  for (std::size_t i = 0; i < values.size(); i += 11) values[i] = special[i / 11 % std::size(special)];
  return values;
}

// The same, rounded to `dtype`; what it does not hold is its largest number.
std::vector<float> finite_inputs(DType dtype, std::size_t numel, std::uint32_t seed) {
  std::vector<float> values = inputs(numel, seed);
  if (dtype == DType::f16)
    for (float& x : values) x = std::clamp(x, -65504.0f, 65504.0f);
  return rounded(dtype, values);
}

TEST_F(ElementwiseKernels, gelu_is_near_its_formula) {
  for (const DType dtype : element_types) {
    for (const std::size_t numel : numels) {
      const std::vector<float> x = finite_inputs(dtype, numel, 1);
      const Arrays result = run_pass(*device, dtype, {x, std::vector<float>(numel)}, [&](const auto& at) {
        gelu(queue(), row(at[0], dtype, numel), at[1].data());
      });
      EXPECT_EQ(result[0], x);
      for (std::size_t i = 0; i < numel; ++i)
        ASSERT_NEAR(result[1][i], plain_gelu(x[i]), tolerance(dtype, plain_gelu(x[i]), 1e-6)) << x[i];
    }
  }
}

TEST_F(ElementwiseKernels, gelu_backward_is_near_the_derivative_and_gives_gelu_again) {
  for (const DType dtype : element_types) {
    for (const std::size_t numel : numels) {
      const std::vector<float> x = finite_inputs(dtype, numel, 1), dy = rounded(dtype, ordinary(numel, 2));
      const Arrays result = run_pass(*device, dtype, {x, dy, std::vector<float>(numel)}, [&](const auto& at) {
        gelu_backward(queue(), row(at[0], dtype, numel), at[1].data(), at[2].data());
      });
      for (std::size_t i = 0; i < numel; ++i) {
        // 1e200: 1 - t * t is 0 there, its factor beyond all numbers.
        const double slope = std::abs(x[i]) < 50 ? plain_gelu_derivative(x[i]) : (x[i] > 0 ? 1 : 0);
        ASSERT_NEAR(result[1][i], dy[i] * slope, tolerance(dtype, dy[i] * slope, 1e-5)) << x[i];
        ASSERT_NEAR(result[2][i], plain_gelu(x[i]), tolerance(dtype, plain_gelu(x[i]), 1e-6)) << x[i];
      }
    }
  }
}

TEST_F(ElementwiseKernels, gelu_of_nan_is_nan_and_of_infinity_infinity) {
  const std::vector<float> x = {std::nanf(""), infinity};
  const Operand in(*device, x), y(*device, std::vector<float>(2));
  gelu(queue(), row(in, DType::f32, 2), y.data());
  EXPECT_TRUE(std::isnan(y.values<float>()[0]));
  EXPECT_EQ(y.values<float>()[1], infinity);
}

std::vector<float> moderate(DType dtype, std::size_t numel, std::uint32_t seed) {
  return rounded(dtype, ordinary(numel, seed, 3.0f));
}

// Rows of gates and ups side by side; widths are odd, whole vectors, and one.
constexpr std::pair<std::int64_t, std::int64_t> gated_shapes[] = {{0, 5}, {1, 1}, {7, 33}, {5, 64}, {301, 8}};

TEST_F(ElementwiseKernels, swiglu_and_its_derivative_are_near_the_formula_at_any_alignment) {
  for (const DType dtype : element_types) {
    for (const auto& [rows, width] : gated_shapes) {
      const auto numel = static_cast<std::size_t>(rows * width), columns = static_cast<std::size_t>(width);
      const std::vector<float> hidden = moderate(dtype, 2 * numel, 1), dy = moderate(dtype, numel, 2);
      for (const std::size_t offset : {std::size_t{0}, size_of(dtype)}) {
        const Operand input(*device, dtype, hidden, offset),
            y(*device, dtype, std::vector<float>(numel), offset);
        const Operand gradient(*device, dtype, dy, offset);
        const Matrix in = matrix(input.data(), dtype, rows, 2 * width);
        swiglu(queue(), in, y.data());
        swiglu_backward(queue(), in, gradient.data());
        const std::vector<float> output = y.values_of(dtype), dhidden = input.values_of(dtype);
        EXPECT_EQ(gradient.values_of(dtype), output);
        for (std::size_t i = 0; i < numel; ++i) {
          const std::size_t gate = i / columns * 2 * columns + i % columns, up = gate + columns;
          const double s = sigmoid(hidden[gate]), silu = hidden[gate] * s;
          const double dgate = dy[i] * hidden[up] * (s + hidden[gate] * s * (1 - s));
          ASSERT_NEAR(output[i], silu * hidden[up], tolerance(dtype, silu * hidden[up], 5e-6));
          ASSERT_NEAR(dhidden[gate], dgate, tolerance(dtype, dgate, 5e-6));
          ASSERT_NEAR(dhidden[up], dy[i] * silu, tolerance(dtype, dy[i] * silu, 5e-6));
        }
      }
    }
  }
}

TEST_F(ElementwiseKernels, a_sum_is_rounded_once_and_may_be_one_of_its_terms) {
  for (const DType dtype : element_types) {
    for (const std::size_t numel : numels) {
      const std::vector<float> a = rounded(dtype, adversarial(numel, 1)),
                               b = rounded(dtype, adversarial(numel, 2));
      std::vector<float> wanted(numel);
      for (std::size_t i = 0; i < numel; ++i) wanted[i] = a[i] + b[i];
      wanted = rounded(dtype, wanted);
      const Arrays result = run_pass(*device, dtype, {a, b, a}, [&](const auto& at) {
        add(queue(), row(at[0], dtype, numel), at[1].data(), at[2].data());
        add(queue(), row(at[0], dtype, numel), at[1].data(), at[0].data());
      });
      EXPECT_EQ(first_difference(result[2], wanted), numel);
      EXPECT_EQ(first_difference(result[0], wanted), numel);
    }
  }
}

TEST_F(ElementwiseKernels, accumulation_and_scaling_are_single_fp32_operations) {
  for (const DType dtype : element_types) {
    for (const std::size_t numel : numels) {
      const std::vector<float> x = rounded(dtype, adversarial(numel, 1)), before = adversarial(numel, 2);
      for (const std::size_t offset : {0, 4}) {
        const Operand in(*device, dtype, x, offset), sum(*device, before, offset);
        const Operand scaled(*device, dtype, x, offset);
        accumulate(queue(), row(in, dtype, numel), sum.data<float>());
        scale(queue(), row(in, dtype, numel), 0.37f, scaled.data());
        std::vector<float> wanted_sum(numel), wanted_scaled(numel);
        for (std::size_t i = 0; i < numel; ++i)
          wanted_sum[i] = before[i] + x[i], wanted_scaled[i] = x[i] * 0.37f;
        EXPECT_EQ(first_difference(sum.values<float>(), wanted_sum), numel);
        EXPECT_EQ(first_difference(scaled.values_of(dtype), rounded(dtype, wanted_scaled)), numel);
      }
    }
  }
}

TEST_F(ElementwiseKernels, conversions_round_once_between_all_types) {
  for (const DType from : element_types) {
    for (const DType to : element_types) {
      for (const std::size_t numel : numels) {
        const std::vector<float> x = rounded(from, adversarial(numel, 1));
        for (const std::size_t offset : {0, 4}) {
          const Operand in(*device, from, x, offset), out(*device, to, std::vector<float>(numel), offset);
          convert(queue(), in.data(), from, out.data(), to, static_cast<std::int64_t>(numel));
          EXPECT_EQ(first_difference(out.values_of(to), rounded(to, x)), numel);
        }
      }
    }
  }
}

TEST_F(ElementwiseKernels, every_bf16_widens_to_its_own_bits) {
  std::vector<bf16> all;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) all.push_back({static_cast<std::uint16_t>(bits)});
  const Operand in(*device, all), out(*device, std::vector<std::uint32_t>(all.size()));
  convert(queue(), in.data(), DType::bf16, out.data(), DType::f32, static_cast<std::int64_t>(all.size()));
  const auto result = out.values<std::uint32_t>();
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) ASSERT_EQ(result[bits], bits << 16);
}

// ---- Sums of columns

std::vector<float> column_sums_of(Device& device, KernelQueue& queue, DType dtype,
                                  const std::vector<float>& x, const Matrix& shape, std::size_t offset) {
  const Operand in(device, dtype, x, offset);
  const Operand sums(device, dtype, std::vector<float>(static_cast<std::size_t>(shape.columns), 9.0f),
                     offset);
  const Operand scratch(device, std::vector<std::byte>(column_sums_scratch_bytes(shape.rows, shape.columns)),
                        4);
  Matrix matrix = shape;
  matrix.data = in.data(), matrix.dtype = dtype;
  column_sums(queue, matrix, sums.data(), scratch.data<float>());
  return sums.values_of(dtype);
}

TEST_F(ElementwiseKernels, column_sums_are_near_the_sums_and_depend_on_no_alignment) {
  struct Shape {
    std::int64_t rows, columns, stride;
  };
  for (const Shape s : {Shape{0, 33, 33},
                        {1, 1, 1},
                        {3, 33, 40},
                        {257, 1027, 1027},
                        {257, 512, 1024},
                        {130, 264, 264},
                        {20001, 3, 3}}) {
    for (const DType dtype : element_types) {
      // Ends with the last row's last column: what lies between rows may be read by nobody.
      const std::int64_t numel = s.rows == 0 ? 0 : (s.rows - 1) * s.stride + s.columns;
      const std::vector<float> x = rounded(dtype, ordinary(static_cast<std::size_t>(numel), 1));
      const Matrix shape{nullptr, dtype, s.rows, s.columns, s.stride};
      const auto result = column_sums_of(*device, queue(), dtype, x, shape, 0);
      for (std::int64_t column = 0; column < s.columns; ++column) {
        double sum = 0, terms = 0;
        for (std::int64_t r = 0; r < s.rows; ++r) {
          const double term = x[static_cast<std::size_t>(r * s.stride + column)];
          sum += term, terms += std::abs(term);
        }
        ASSERT_NEAR(result[static_cast<std::size_t>(column)], sum, 1e-6 * terms + tolerance(dtype, sum))
            << s.rows << " x " << s.columns << ", column " << column;
      }
      ASSERT_EQ(column_sums_of(*device, queue(), dtype, x, shape, size_of(dtype)), result);
    }
  }
}

// ---- Mean

TEST_F(ElementwiseKernels, a_mean_is_the_sum_in_index_order) {
  for (const std::size_t count : {1, 33, 1023, 1024, 1025, 5000}) {
    std::vector<double> losses;
    for (const float x : ordinary(count, 1, 1e3f)) losses.push_back(std::exp(static_cast<double>(x) * 1e-2));
    const Operand values(*device, losses), result(*device, std::vector<float>(1));
    mean(queue(), values.data<double>(), static_cast<std::int64_t>(count), result.data<float>());
    const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
    EXPECT_EQ(result.values<float>()[0], static_cast<float>(sum / static_cast<double>(count)));
  }
}

}  // namespace
}  // namespace headrace::test
