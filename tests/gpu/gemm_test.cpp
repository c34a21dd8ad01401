// Products on the device against plain double-precision ones. What a product may differ by is what rounding
// each of its fp32 additions, and the result once, can do.
#include "gpu/gemm.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <ostream>
#include <random>
#include <vector>

#include "headrace/errors.h"
#include "tests/gpu/gpu_harness.h"

namespace headrace::test {
namespace {

using ::testing::HasSubstr;

std::size_t bytes_of(GemmType type) {
  return type == GemmType::f32 ? 4 : 2;
}
// Half the distance of 1 to the next larger number.
double unit_roundoff(GemmType type) {
  if (type == GemmType::f32) return 0x1p-24;
  return type == GemmType::f16 ? 0x1p-11 : 0x1p-8;
}

constexpr std::byte untouched{0x5a};
constexpr Bytes workspace_bytes = (Bytes{1} << 20) + 256;

// A matrix as a program holds it: rows `stride` apart, what lies between them included.
struct HostMatrix {
  GemmType type = GemmType::f32;
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::vector<std::byte> bytes;

  HostMatrix(GemmType type_in, std::int64_t rows_in, std::int64_t columns_in, std::int64_t gap)
      : type(type_in),
        rows(rows_in),
        columns(columns_in),
        stride(columns_in + gap),
        bytes(static_cast<std::size_t>(rows * stride) * bytes_of(type), untouched) {}

  std::size_t offset(std::int64_t r, std::int64_t c) const {
    return static_cast<std::size_t>(r * stride + c) * bytes_of(type);
  }
  void set(std::int64_t r, std::int64_t c, float value) {
    const __nv_bfloat16 brief = __float2bfloat16_rn(value);
    const __half half = __float2half_rn(value);
    const void* from = &value;
    if (type == GemmType::bf16) from = &brief;
    if (type == GemmType::f16) from = &half;
    std::memcpy(bytes.data() + offset(r, c), from, bytes_of(type));
  }
  double at(std::int64_t r, std::int64_t c) const {
    float value = 0;
    __nv_bfloat16 brief;
    __half half;
    const std::byte* from = bytes.data() + offset(r, c);
    if (type == GemmType::f32) return std::memcpy(&value, from, 4), static_cast<double>(value);
    if (type == GemmType::bf16)
      return std::memcpy(&brief, from, 2), static_cast<double>(__bfloat162float(brief));
    return std::memcpy(&half, from, 2), static_cast<double>(__half2float(half));
  }
  std::vector<double> reals() const {
    std::vector<double> values;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) values.push_back(at(r, c));
    return values;
  }
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-1, 1);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) set(r, c, values(random));
  }
};

struct Case {
  GemmType input = GemmType::f32, output = GemmType::f32;
  Transpose transpose = Transpose::none;
  std::int64_t m = 1, n = 1, k = 1;
  bool bias = false, accumulate = false;
  std::int64_t gap = 0;  // elements between rows
};
std::ostream& operator<<(std::ostream& out, const Case& t) {
  return out << t.m << " x " << t.k << " by " << t.k << " x " << t.n << ", bias " << t.bias << ", accumulate "
             << t.accumulate << ", gap " << t.gap;
}

// The operands of a case. c holds what was there before the product.
struct Operands {
  HostMatrix a, b, bias, c;

  explicit Operands(const Case& t)
      : a(t.input, t.transpose == Transpose::a ? t.k : t.m, t.transpose == Transpose::a ? t.m : t.k, t.gap),
        b(t.input, t.transpose == Transpose::b ? t.n : t.k, t.transpose == Transpose::b ? t.k : t.n,
          2 * t.gap),
        bias(t.input, 1, t.n, 0),
        c(t.output, t.m, t.n, 3 * t.gap) {
    a.fill(1), b.fill(2), bias.fill(3), c.fill(4);
  }
};

// The plain product, and by how much each element may differ from it.
struct Expected {
  std::vector<double> values, tolerances;
};
Expected expected(const Case& t, const Operands& o) {
  const std::vector<double> a = o.a.reals(), b = o.b.reals(), bias = o.bias.reals(), c = o.c.reals();
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const bool a_transposed = t.transpose == Transpose::a, b_transposed = t.transpose == Transpose::b;
  const double sum_roundoff = static_cast<double>(t.k + 3) * unit_roundoff(GemmType::f32);
  Expected result;
  for (std::int64_t i = 0; i < t.m; ++i)
    for (std::int64_t j = 0; j < t.n; ++j) {
      double sum = 0, magnitude = 0;
      const auto add = [&](double term) { sum += term, magnitude += std::abs(term); };
      for (std::int64_t l = 0; l < t.k; ++l)
        add(a[at(a_transposed ? l * t.m + i : i * t.k + l)] *
            b[at(b_transposed ? j * t.k + l : l * t.n + j)]);
      if (t.bias) add(bias[at(j)]);
      if (t.accumulate) add(c[at(i * t.n + j)]);
      result.values.push_back(sum);
      result.tolerances.push_back(sum_roundoff * magnitude + unit_roundoff(t.output) * std::abs(sum));
    }
  return result;
}

class GemmOnDevice : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (device) workspace_.emplace(*device, std::vector<std::byte>(workspace_bytes + 256));
    if (device) start();
  }
  // Afresh, with no algorithm chosen yet.
  void start(std::size_t workspace_shift = 0) {
    gemm_.emplace(workspace_->data() + workspace_shift, workspace_bytes);
  }

  // c after the product. Operands start `shift` bytes behind blocks of 256.
  HostMatrix product(const Case& t, const Operands& o, std::size_t shift = 0) {
    const Operand a(*device, o.a.bytes, shift), b(*device, o.b.bytes, shift),
        bias(*device, o.bias.bytes, shift), c(*device, o.c.bytes, shift);
    gemm_->run(queue(),
               {.input = t.input,
                .output = t.output,
                .transpose = t.transpose,
                .m = t.m,
                .n = t.n,
                .k = t.k,
                .a_stride = o.a.stride,
                .b_stride = o.b.stride,
                .c_stride = o.c.stride},
               {.a = a.data(),
                .b = b.data(),
                .bias = t.bias ? bias.data() : nullptr,
                .c = c.data(),
                .accumulate = t.accumulate});
    HostMatrix result = o.c;
    result.bytes = c.values<std::byte>();
    return result;
  }

  // Every element is that of the plain product, and nothing between the rows is touched.
  ::testing::AssertionResult is_right(const Case& t) {
    const Operands o(t);
    const HostMatrix c = product(t, o);
    const Expected plain = expected(t, o);
    const std::vector<double> values = c.reals();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!(std::abs(values[i] - plain.values[i]) <= plain.tolerances[i]))
        return ::testing::AssertionFailure() << t << ": element " << i << " is " << values[i] << ", not "
                                             << plain.values[i] << " +- " << plain.tolerances[i];
    for (std::int64_t r = 0; r < t.m; ++r)
      if (!std::all_of(c.bytes.data() + c.offset(r, t.n), c.bytes.data() + c.offset(r + 1, 0),
                       [](std::byte byte) { return byte == untouched; }))
        return ::testing::AssertionFailure() << t << ": bytes behind row " << r << " are written";
    return ::testing::AssertionSuccess();
  }

  std::optional<Operand> workspace_;
  std::optional<CudaGemm> gemm_;
};

struct Kind {
  GemmType input, output;
  Transpose transpose;
};
class GemmOfKind : public GemmOnDevice, public ::testing::WithParamInterface<Kind> {
 protected:
  Case base() const {
    return {.input = GetParam().input, .output = GetParam().output, .transpose = GetParam().transpose};
  }
};
std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const Transpose transpose : {Transpose::none, Transpose::a, Transpose::b})
    for (const auto& [input, output] : {std::pair{GemmType::f32, GemmType::f32},
                                        {GemmType::bf16, GemmType::bf16},
                                        {GemmType::bf16, GemmType::f32},
                                        {GemmType::f16, GemmType::f16},
                                        {GemmType::f16, GemmType::f32}})
      kinds.push_back({input, output, transpose});
  return kinds;
}
std::string name_of_kind(const ::testing::TestParamInfo<Kind>& info) {
  constexpr const char* types[] = {"fp32", "bf16", "fp16"};
  constexpr const char* transposes[] = {"plain", "a_transposed", "b_transposed"};
  return std::string(types[static_cast<int>(info.param.input)]) + "_to_" +
         types[static_cast<int>(info.param.output)] + "_" +
         transposes[static_cast<int>(info.param.transpose)];
}
INSTANTIATE_TEST_SUITE_P(Kinds, GemmOfKind, ::testing::ValuesIn(all_kinds()), name_of_kind);

TEST_P(GemmOfKind, products_of_all_sizes_are_those_of_double_precision_rounded_once) {
  constexpr std::int64_t sizes[][3] = {
      {1, 1, 1},    {3, 3, 3},      {65, 65, 65}, {1, 257, 33}, {257, 1, 65}, {3, 33, 257},  {33, 3, 1},
      {257, 65, 3}, {33, 257, 257}, {65, 1, 257}, {1, 3, 65},   {8, 8, 4096}, {64, 128, 256}};
  for (const auto& [m, n, k] : sizes)
    for (int extra = 0; extra < 4; ++extra) {
      Case t = base();
      t.m = m, t.n = n, t.k = k;
      t.bias = (extra & 1) != 0, t.accumulate = (extra & 2) != 0;
      t.gap = (m + extra) % 3 * 5;
      ASSERT_TRUE(is_right(t));
    }
}

TEST_P(GemmOfKind, products_of_no_terms_are_the_bias_or_zero_or_what_was_there) {
  for (int extra = 0; extra < 4; ++extra) {
    Case t = base();
    t.m = 33, t.n = 65, t.k = 0, t.gap = 1;
    t.bias = (extra & 1) != 0, t.accumulate = (extra & 2) != 0;
    EXPECT_TRUE(is_right(t));
  }
}

TEST_F(GemmOnDevice, products_without_rows_or_columns_touch_nothing) {
  for (const auto& [m, n] : {std::pair{0, 3}, {3, 0}, {0, 0}})
    EXPECT_TRUE(is_right({.m = m, .n = n, .k = 5, .bias = true}));
}

TEST_P(GemmOfKind, bits_are_the_same_wherever_operands_lie) {
  Case t = base();
  t.m = 33, t.n = 64, t.k = 257, t.bias = true, t.accumulate = true;
  for (const std::int64_t gap : {0, 7, 64}) {
    t.gap = gap;
    const Operands o(t);
    const HostMatrix first = product(t, o);
    for (const std::size_t shift : {64, 128, 192}) {
      start(shift);
      EXPECT_EQ(product(t, o, shift).bytes, first.bytes) << "moved by " << shift << " bytes, gap " << gap;
    }
  }
}

TEST_F(GemmOnDevice, what_cublas_does_not_multiply_is_an_error_with_its_sizes_and_types) {
  const Case t{.input = GemmType::f32, .output = GemmType::bf16, .m = 2, .n = 4, .k = 3};
  try {
    product(t, Operands(t));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("product of fp32 2 x 3 by 3 x 4 to bf16"));
    EXPECT_THAT(error.what(), HasSubstr("CUBLAS_STATUS_NOT_SUPPORTED"));
  }
}

TEST_F(GemmOnDevice, an_operand_between_the_rows_of_a_block_is_a_bug_that_is_told) {
  const Case t{.input = GemmType::bf16, .output = GemmType::bf16, .m = 32, .n = 32, .k = 32};
  EXPECT_THROW(product(t, Operands(t), 16), std::logic_error);
}

TEST_F(GemmOnDevice, products_of_the_models_matrices_are_those_of_their_problem) {
  const Case t{.m = 6, .n = 4, .k = 3, .accumulate = true, .gap = 5};
  const Operands o(t);
  const Operand a(*device, o.a.bytes), b(*device, o.b.bytes), c(*device, o.c.bytes);
  const Matrix of_a{a.data(), DType::f32, 6, 3, o.a.stride}, of_b{b.data(), DType::f32, 3, 4, o.b.stride},
      of_c{c.data(), DType::f32, 6, 4, o.c.stride};
  gemm_->run(queue(), {.a = of_a, .b = of_b, .c = of_c, .accumulate = true});
  EXPECT_EQ(c.values<std::byte>(), product(t, o).bytes);
  EXPECT_THROW(gemm_->run(queue(), {.a = of_a, .b = of_a, .c = of_c}), std::logic_error);
  EXPECT_THROW(gemm_->run(queue(), {.a = of_a, .b = of_b, .transpose = Transpose::a, .c = of_c}),
               std::logic_error);
}

}  // namespace
}  // namespace headrace::test
