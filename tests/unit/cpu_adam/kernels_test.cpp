// Sums over ranks, rounding and norms on every instruction set against loops that say what they mean.
#include <gtest/gtest.h>

#include <array>

#include "cpu_adam/kernel_table.h"
#include "headrace/kernels.h"
#include "unit/cpu_adam/arrays.h"
#include "unit/cpu_adam/isa_test.h"

namespace headrace::test {
namespace {

class KernelsOnIsa : public IsaTest {
 protected:
  const KernelTable& kernels() const { return kernels_of(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Every, KernelsOnIsa, every_isa, isa_test_name);

template <class T>
std::vector<T> typed(const std::vector<float>& values) {
  if constexpr (std::is_same_v<T, bf16>) return as_bf16(values);
  if constexpr (std::is_same_v<T, fp16>) return as_fp16(values);
  if constexpr (std::is_same_v<T, float>) return values;
}

float widened(float x) {
  return x;
}
float widened(bf16 x) {
  return to_float(x);
}
float widened(fp16 x) {
  return to_float(x);
}

template <class T>
constexpr DType dtype_of = std::is_same_v<T, bf16>   ? DType::bf16
                           : std::is_same_v<T, fp16> ? DType::f16
                                                     : DType::f32;

template <class T>
void check_sum(const KernelTable& kernels, std::uint64_t numel, std::size_t slice_count, bool accumulate,
               std::size_t offset) {
  std::vector<Guarded<T>> slices;
  std::vector<const void*> pointers;
  for (std::size_t r = 0; r < slice_count; ++r) {
    slices.emplace_back(typed<T>(adversarial(numel, static_cast<std::uint32_t>(r + 100 * numel))), offset);
  }
  for (auto& slice : slices) pointers.push_back(slice.data());
  const std::vector<float> before = adversarial(numel, 999);
  Guarded<float> sum(before, offset / 4 * 4);
  kernels.sum_slices(pointers.data(), slice_count, dtype_of<T>, numel, sum.data(), accumulate);

  std::vector<float> wanted(numel);
  for (std::uint64_t i = 0; i < numel; ++i) {
    float s = slice_count == 0 ? 0.0f : widened(slices[0].data()[i]);
    for (std::size_t r = 1; r < slice_count; ++r) s = s + widened(slices[r].data()[i]);
    wanted[i] = accumulate ? before[i] + s : s;
  }
  ASSERT_EQ(first_difference(sum.values(), wanted), numel)
      << numel << " elements, " << slice_count << " slices, offset " << offset;
  ASSERT_TRUE(sum.guards_intact());
}

TEST_P(KernelsOnIsa, slices_are_summed_in_order_in_fp32) {
  for (const std::uint64_t numel : tested_numels) {
    for (const std::size_t slice_count : {0, 1, 2, 3, 5}) {
      for (const bool accumulate : {false, true}) {
        const std::size_t offset = (numel * 6 + slice_count * 2) % 64;
        check_sum<bf16>(kernels(), numel, slice_count, accumulate, offset);
        check_sum<fp16>(kernels(), numel, slice_count, accumulate, (offset + 2) % 64);
        check_sum<float>(kernels(), numel, slice_count, accumulate, offset / 4 * 4);
      }
    }
  }
}

TEST_P(KernelsOnIsa, sum_may_be_its_own_first_slice) {
  std::vector<float> a = ordinary(1025, 1);
  const std::vector<float> b = ordinary(1025, 2);
  std::vector<float> wanted = a;
  for (std::size_t i = 0; i < a.size(); ++i) wanted[i] = wanted[i] + b[i];
  const std::array<const void*, 2> slices = {a.data(), b.data()};
  kernels().sum_slices(slices.data(), slices.size(), DType::f32, a.size(), a.data(), false);
  EXPECT_EQ(a, wanted);
}

// [Note: order of a squared norm] of cpu_adam/sums_body.h, from the elements alone.
double expected_partial(const float* x, std::uint64_t numel) {
  double lane[32] = {};
  for (std::uint64_t i = 0; i < numel; ++i)
    lane[i % 32] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (int half = 16; half >= 1; half /= 2) {
    for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

template <class T>
void check_norm(const KernelTable& kernels, const std::vector<float>& values, std::size_t offset) {
  const std::uint64_t numel = values.size();
  const std::uint64_t chunks = (numel + norm_chunk_numel - 1) / norm_chunk_numel;
  Guarded<float> sum(values, offset / 4 * 4);
  Guarded<T> rounded(std::vector<T>(numel), offset);
  Guarded<double> partials(std::vector<double>(chunks, -1.0), 8);
  kernels.round_and_norm(sum.data(), rounded.data(), dtype_of<T>, numel, partials.data());

  std::vector<float> wanted(numel);
  for (std::uint64_t i = 0; i < numel; ++i) wanted[i] = widened(typed<T>({values[i]})[0]);
  std::vector<float> written;
  for (const T x : rounded.values()) written.push_back(widened(x));
  ASSERT_EQ(first_difference(written, wanted), numel) << numel << " elements, offset " << offset;
  for (std::uint64_t c = 0; c < chunks; ++c) {
    const std::uint64_t begin = c * norm_chunk_numel;
    const double partial = expected_partial(wanted.data() + begin, std::min(norm_chunk_numel, numel - begin));
    ASSERT_TRUE(same_bits(partials.values()[c], partial)) << "chunk " << c << " of " << numel << " elements";
  }
  ASSERT_TRUE(rounded.guards_intact() && partials.guards_intact() && sum.guards_intact());
}

TEST_P(KernelsOnIsa, norm_partials_follow_the_fixed_lane_order_of_each_chunk) {
  for (std::uint64_t numel : tested_numels) {
    for (std::size_t offset = 0; offset <= 60; offset += 12) {
      check_norm<bf16>(kernels(), ordinary(numel, 17), offset + 2);
      check_norm<float>(kernels(), ordinary(numel, 18), offset);
      check_norm<bf16>(kernels(), adversarial(numel, 19), offset);
      check_norm<fp16>(kernels(), adversarial(numel, 21), offset + 2);
    }
  }
  check_norm<bf16>(kernels(), ordinary(3 * norm_chunk_numel + 77, 20), 0);
  check_norm<fp16>(kernels(), ordinary(3 * norm_chunk_numel + 77, 22), 0);
}

TEST_P(KernelsOnIsa, non_finite_values_reach_the_partial_of_their_chunk_alone) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = ordinary(3 * norm_chunk_numel, 1);
    values[norm_chunk_numel + 5] = bad;
    double partials[3];
    kernels().round_and_norm(values.data(), values.data(), DType::f32, values.size(), partials);
    EXPECT_TRUE(std::isfinite(partials[0]) && !std::isfinite(partials[1]) && std::isfinite(partials[2]));
  }
}

TEST_P(KernelsOnIsa, norm_of_a_gradient_beyond_the_range_of_fp32_squares_is_exact) {
  std::vector<float> values(4, 0x1p100f);
  double partial = 0;
  kernels().round_and_norm(values.data(), values.data(), DType::f32, values.size(), &partial);
  EXPECT_EQ(partial, 0x1p202);
}

TEST_P(KernelsOnIsa, rounding_in_place_keeps_fp32_values) {
  std::vector<float> values = ordinary(4100, 3);
  const std::vector<float> before = values;
  double partials[2];
  kernels().round_and_norm(values.data(), values.data(), DType::f32, values.size(), partials);
  EXPECT_EQ(values, before);
  EXPECT_TRUE(same_bits(partials[1], expected_partial(before.data() + 4096, 4)));
}

// Every sign, exponent and upper mantissa, with the lower halves where rounding to nearest even decides.
TEST_P(KernelsOnIsa, rounding_to_bf16_is_to_nearest_even_over_all_upper_halves) {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  std::vector<bf16> low(values.size());
  kernels().round_to(values.data(), low.data(), DType::bf16, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(low[i].bits, to_bf16(values[i]).bits) << std::hexfloat << values[i];
  }
}

TEST_P(KernelsOnIsa, rounding_to_fp16_is_to_nearest_even_over_all_upper_parts) {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 1u << 19; ++upper) {
    for (const std::uint32_t lower : {0x0000u, 0x0fffu, 0x1000u, 0x1001u})
      values.push_back(std::bit_cast<float>(upper << 13 | lower));
  }
  std::vector<fp16> low(values.size());
  kernels().round_to(values.data(), low.data(), DType::f16, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(low[i].bits, to_fp16(values[i]).bits) << std::hexfloat << values[i];
  }
}

TEST_P(KernelsOnIsa, rounding_touches_no_byte_beyond) {
  for (const std::uint64_t numel : tested_numels) {
    for (std::size_t offset = 0; offset <= 60; offset += 2) {
      const std::vector<float> values = adversarial(numel, 5);
      Guarded<bf16> low(std::vector<bf16>(numel), offset);
      Guarded<fp16> half(std::vector<fp16>(numel), offset);
      Guarded<float> copy(std::vector<float>(numel), offset / 4 * 4);
      kernels().round_to(values.data(), low.data(), DType::bf16, numel);
      kernels().round_to(values.data(), half.data(), DType::f16, numel);
      kernels().round_to(values.data(), copy.data(), DType::f32, numel);
      ASSERT_EQ(first_difference(low.values(), as_bf16(values)), numel);
      ASSERT_EQ(first_difference(half.values(), as_fp16(values)), numel);
      ASSERT_EQ(first_difference(copy.values(), values), numel);
      ASSERT_TRUE(low.guards_intact() && half.guards_intact() && copy.guards_intact());
    }
  }
}

}  // namespace
}  // namespace headrace::test
