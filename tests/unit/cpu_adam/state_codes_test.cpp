// How values of a state are kept in 16 and 8 bits: the code books, and the statistics of stochastic rounding.
#include <gtest/gtest.h>

#include <cmath>

#include "unit/cpu_adam/update_oracle.h"

namespace headrace::test {
namespace {

// ---- The code books

struct Book {
  int decades;
  std::uint32_t codes;
};
constexpr Book books[] = {{signed_decades, 128}, {unsigned_decades, 256}};

// optimizer_state.h's formula in double.
double value_in_double(std::uint32_t k, int decades) {
  if (k == 0) return 0;
  const double e = std::floor(std::log2(k)), steps = std::exp2(e);
  return std::pow(8, e - decades) * (1.0 / 8 + 7.0 / 8 * (k - steps + 1) / steps);
}

TEST(CodeBook, has_the_values_of_its_formula_from_0_to_1_in_rising_order) {
  for (const Book& book : books) {
    for (std::uint32_t k = 0; k < book.codes; ++k) {
      ASSERT_EQ(decode_magnitude(k, book.decades), value_in_double(k, book.decades)) << k;
      if (k > 0) {
        ASSERT_GT(decode_magnitude(k, book.decades), decode_magnitude(k - 1, book.decades));
      }
    }
    EXPECT_EQ(decode_magnitude(book.codes - 1, book.decades), 1.0f);
  }
}

// But for fp32's rounding in the encoder, and between 0 and the first code, where 9/16 of that one decide.
TEST(CodeBook, every_code_is_its_own_nearest_and_halfway_points_part_neighbours) {
  constexpr float below = 1 - 0x1p-20f, above = 1 + 0x1p-20f;
  for (const Book& book : books) {
    for (std::uint32_t k = 0; k < book.codes; ++k) {
      const float value = decode_magnitude(k, book.decades);
      ASSERT_EQ(encode_magnitude(value, book.decades), k);
      if (k + 1 == book.codes) continue;
      const float next = decode_magnitude(k + 1, book.decades);
      const float border = k == 0 ? 0.5625f * next : (value + next) / 2;
      ASSERT_EQ(encode_magnitude(border * below, book.decades), k);
      ASSERT_EQ(encode_magnitude(border * above, book.decades), k + 1);
    }
  }
}

// Half a step of the decade: 7/16 of the decade's top over the codes it has; below the first code 9/16 of it.
TEST(CodeBook, error_is_at_most_half_a_step_of_the_decade_and_codes_rise_with_values) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-24, 0);
  for (const Book& book : books) {
    std::vector<float> values;
    for (int i = 0; i < 20000; ++i) values.push_back(static_cast<float>(std::exp2(exponent(random))));
    std::sort(values.begin(), values.end());
    std::uint32_t last = 0;
    for (const float x : values) {
      const std::uint32_t code = encode_magnitude(x, book.decades);
      ASSERT_GE(code, last);
      last = code;
      const int below = static_cast<int>(std::floor(-std::log2(static_cast<double>(x)) / 3));
      const double top = std::pow(8, -below);
      const double half_step = below > book.decades    ? top
                               : below == book.decades ? top * 9 / 16
                                                       : top * 7 / 16 / std::exp2(book.decades - below);
      ASSERT_LE(std::abs(decode_magnitude(code, book.decades) - x), half_step * (1 + 1e-6)) << x;
    }
  }
}

TEST(CodeBook, signed_codes_keep_the_sign_and_nan_is_the_largest_without_one) {
  for (std::uint32_t k = 0; k < 128; ++k) {
    const float value = decode_signed(static_cast<std::uint8_t>(k), 3.0f);
    ASSERT_EQ(decode_signed(static_cast<std::uint8_t>(k | 0x80), 3.0f), -value);
    ASSERT_EQ(encode_signed(value, 1.0f / 3.0f), k);
    ASSERT_EQ(encode_signed(-value, 1.0f / 3.0f), k | 0x80);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(encode_signed(nan, 1.0f), 127);
  EXPECT_EQ(encode_signed(std::bit_cast<float>(std::bit_cast<std::uint32_t>(nan) | 0x80000000u), 1.0f), 127);
}

TEST(CodeBook, root_above_0_never_becomes_0) {
  for (const float root : {0x1p-149f, 0x1p-126f, 1e-30f, 1e-9f, 1.0f}) {
    for (const float scale : {0x1p-149f, 0x1p-126f, 1e-20f, 1.0f, 0x1.fffffep127f}) {
      if (root > scale) continue;
      const std::uint8_t code = encode_root(root, inverse_scale(scale));
      ASSERT_GE(code, 1) << root << " of " << scale;
    }
  }
  EXPECT_EQ(encode_root(0.0f, 1.0f), 0);
}

TEST(CodeBook, block_of_nothing_above_denormals_decodes_to_nothing_larger_than_its_scale) {
  for (const float scale : {0.0f, 0x1p-149f, 0x1.8p-130f, 0x1.fffffcp-127f}) {
    EXPECT_EQ(inverse_scale(scale), 0.0f);
    EXPECT_EQ(decode_signed(encode_signed(scale, inverse_scale(scale)), scale), 0.0f);
    EXPECT_LE(decode_squared(encode_root(scale, inverse_scale(scale)), scale), scale);
  }
  EXPECT_EQ(inverse_scale(0x1p-126f), 0x1p126f);
}

// ---- Stochastic rounding

// Momentum of one step from 0 is the gradient, and the parameter is minus the gradient: both arrays round the
// same numbers.
struct Rounded {
  std::vector<float> master, moment;
};
Rounded rounded(const std::vector<float>& values, std::uint64_t seed, std::uint64_t step,
                std::uint64_t first) {
  const OptimizerArguments arguments = {
      .kind = OptimizerKind::sgd, .learning_rate = 1.0, .momentum = 0.9, .step = step, .seed = seed};
  const UpdateCase c = {.arguments = arguments,
                        .master = MasterDType::bf16,
                        .moments = MomentDType::bf16,
                        .numel = values.size(),
                        .first_element = first};
  UpdateValues before = values_of(c, Inputs::ordinary, 1);
  before.gradient = encoded(values, DType::f32);
  before.master = before.moments[0] = encoded(std::vector<float>(values.size()), DType::bf16);
  const UpdateValues after = updated(c, before, best_isa());
  Rounded result{decoded(after.master, DType::bf16), decoded(after.moments[0], DType::bf16)};
  for (float& x : result.master) x = -x;
  return result;
}

constexpr std::uint64_t samples = 1 << 17;
constexpr double five_sigma = 5.0;

double share_up(const std::vector<float>& values) {
  return static_cast<double>(std::count_if(values.begin(), values.end(), [](float x) { return x > 1.0f; })) /
         static_cast<double>(values.size());
}

TEST(StochasticRounding, goes_up_as_often_as_the_cut_off_rest_says_in_both_arrays) {
  for (const double rest : {0.001, 0.25, 0.5, 0.9, 0.999}) {
    const auto value = static_cast<float>(1.0 + rest * 0x1p-7);
    const Rounded result = rounded(std::vector<float>(samples, value), 11, 4, std::uint64_t{7} << 33);
    const double allowed = five_sigma * std::sqrt(rest * (1 - rest) / samples) + 0x1p-16;
    EXPECT_NEAR(share_up(result.master), rest, allowed);
    EXPECT_NEAR(share_up(result.moment), rest, allowed);
  }
}

// Shares of (up, up) pairs of what should be independent coins.
double share_of_both(const std::vector<float>& a, const std::vector<float>& b, std::size_t shift = 0) {
  std::size_t both = 0;
  for (std::size_t i = 0; i + shift < a.size(); ++i) both += a[i] > 1.0f && b[i + shift] > 1.0f ? 1 : 0;
  return static_cast<double>(both) / static_cast<double>(a.size() - shift);
}

TEST(StochasticRounding, arrays_neighbours_steps_seeds_and_stretches_draw_independently) {
  const std::vector<float> halfway(samples, 1.0f + 0x1p-8f);
  const Rounded base = rounded(halfway, 1, 2, 0);
  const double allowed = five_sigma * std::sqrt(0.25 * 0.75 / samples) + 0x1p-10;
  EXPECT_NEAR(share_of_both(base.master, base.moment), 0.25, allowed);
  for (const std::size_t shift : {1, 2, 16, 64, 4096}) {
    EXPECT_NEAR(share_of_both(base.master, base.master, shift), 0.25, allowed) << shift;
    EXPECT_NEAR(share_of_both(base.moment, base.moment, shift), 0.25, allowed) << shift;
  }
  for (const Rounded& other : {rounded(halfway, 1, 3, 0), rounded(halfway, 2, 2, 0),
                               rounded(halfway, 1, 2, std::uint64_t{1} << 32)}) {
    EXPECT_NEAR(share_of_both(base.master, other.master), 0.25, allowed);
    EXPECT_NEAR(share_of_both(base.moment, other.moment), 0.25, allowed);
  }
}

// All four arrays of AMSGrad: each pair of draws of one element.
TEST(StochasticRounding, the_four_draws_of_an_element_are_independent) {
  std::size_t both[4][4] = {};
  const std::uint64_t key = stretch_key(rounding_key(3, 9), 0);
  for (std::uint32_t i = 0; i < samples; ++i) {
    const std::uint32_t bits = moment_bits(key, i), more = more_bits(bits);
    const std::uint32_t draws[] = {bits & 0xffff, bits >> 16, more & 0xffff, more >> 16};
    for (int a = 0; a < 4; ++a)
      for (int b = 0; b < 4; ++b) both[a][b] += draws[a] >= 0x8000 && draws[b] >= 0x8000 ? 1 : 0;
  }
  const double allowed = five_sigma * std::sqrt(0.25 * 0.75 / samples);
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b)
      EXPECT_NEAR(static_cast<double>(both[a][b]) / samples, a == b ? 0.5 : 0.25, allowed) << a << ", " << b;
}

TEST(StochasticRounding, keeps_what_fits_and_infinities_and_stays_within_the_two_neighbours) {
  for (const std::uint32_t random : {0u, 1u, 0x7fffu, 0x8000u, 0xffffu}) {
    for (const float x : {0.0f, -0.0f, 1.0f, -0x1p-133f, 0x1p-126f, std::numeric_limits<float>::infinity()}) {
      EXPECT_TRUE(same_bits(to_float(to_bf16_stochastic(x, random)), x)) << x;
    }
    EXPECT_TRUE(std::isnan(to_float(to_bf16_stochastic(std::nanf(""), random))));
    for (const float x : adversarial(1000, 3)) {
      if (!std::isfinite(x)) continue;
      const std::uint32_t down = std::bit_cast<std::uint32_t>(x) & 0xffff0000u;
      const std::uint32_t got = std::bit_cast<std::uint32_t>(to_float(to_bf16_stochastic(x, random)));
      EXPECT_TRUE(got == down || got == down + 0x10000u) << x;
    }
  }
}

// Many steps of a change far below half a bf16 step move the parameter as fp32 would.
TEST(StochasticRounding, small_steps_are_not_lost) {
  const OptimizerArguments base = {.kind = OptimizerKind::sgd, .learning_rate = 1.0, .seed = 5};
  UpdateCase c = {
      .arguments = base, .master = MasterDType::none, .parameter_dtype = DType::bf16, .numel = 4096};
  UpdateValues values = values_of(c, Inputs::ordinary, 1);
  values.master = encoded(std::vector<float>(c.numel, 1.0f), DType::bf16);
  values.gradient = encoded(std::vector<float>(c.numel, -0x1p-14f), DType::f32);
  for (c.arguments.step = 1; c.arguments.step <= 1024; ++c.arguments.step)
    values = updated(c, values, best_isa());
  double sum = 0;
  for (const float x : decoded(values.master, DType::bf16)) sum += x;
  // 1 + 2^10 * 2^-14; one element's deviation is below sqrt(2^10 / 128) * 2^-7.
  EXPECT_NEAR(sum / static_cast<double>(c.numel), 1.0625, five_sigma * 2.83 * 0x1p-7 / 64);
}

TEST(StochasticRounding, a_resumed_run_in_other_cuts_has_the_bits_of_the_whole_run) {
  UpdateCase c = {.arguments = {.amsgrad = true, .seed = 21},
                  .master = MasterDType::bf16,
                  .moments = MomentDType::bf16,
                  .numel = 3000,
                  .first_element = (std::uint64_t{1} << 32) - 1000};
  const UpdateValues start = values_of(c, Inputs::ordinary, 2);
  UpdateValues whole = start;
  for (c.arguments.step = 1; c.arguments.step <= 4; ++c.arguments.step) whole = updated(c, whole, best_isa());

  UpdateValues resumed = start;
  for (c.arguments.step = 1; c.arguments.step <= 2; ++c.arguments.step)
    resumed = updated(c, resumed, best_isa());
  for (c.arguments.step = 3; c.arguments.step <= 4; ++c.arguments.step) {
    resumed = updated(c, resumed, [&](const UpdateSpan& span) {
      for (std::uint64_t begin = 0; begin < span.numel; begin += 777)
        optimizer_update(part_of(span, begin, std::min<std::uint64_t>(777, span.numel - begin)), c.arguments);
    });
  }
  EXPECT_EQ(difference(c, whole, resumed), "");
}

}  // namespace
}  // namespace headrace::test
