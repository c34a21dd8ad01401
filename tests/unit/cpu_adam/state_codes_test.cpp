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

constexpr std::uint32_t least_random = 0, most_random = 0xffff;

// And a value next to it, as decoding and dividing by the scale leave it.
TEST(CodeBook, every_code_stays_itself_whatever_the_random_bits) {
  for (const Book& book : books) {
    for (std::uint32_t k = 0; k < book.codes; ++k) {
      const float value = decode_magnitude(k, book.decades);
      for (const float nearly : {value * (1 - 0x1p-22f), value, value * (1 + 0x1p-22f)})
        for (const std::uint32_t random : {least_random, 0x5a5au, most_random})
          ASSERT_EQ(encode_magnitude(nearly, book.decades, random), k) << nearly;
    }
  }
}

// Also across the borders of decades and below the first code.
TEST(CodeBook, between_two_codes_a_value_becomes_one_of_them_and_is_their_average_over_all_random_bits) {
  for (const Book& book : books) {
    for (std::uint32_t k = 0; k + 1 < book.codes; ++k) {
      const double low = decode_magnitude(k, book.decades),
                   step = decode_magnitude(k + 1, book.decades) - low;
      for (const double share : {0.0005, 0.1, 0.5, 0.93}) {
        const auto value = static_cast<float>(low + share * step);
        std::uint32_t up = 0;
        for (std::uint32_t random = least_random; random <= most_random; ++random) {
          const std::uint32_t code = encode_magnitude(value, book.decades, random);
          ASSERT_TRUE(code == k || code == k + 1) << value;
          up += code - k;
        }
        ASSERT_NEAR(up * 0x1p-16, share, 0x1p-14 + 0x1p-17) << k;
      }
    }
  }
}

TEST(CodeBook, codes_rise_with_values_for_the_same_random_bits) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-30, 0);
  for (const Book& book : books) {
    std::vector<float> values;
    for (int i = 0; i < 20000; ++i) values.push_back(static_cast<float>(std::exp2(exponent(random))));
    std::sort(values.begin(), values.end());
    for (const std::uint32_t bits : {least_random, 0x8000u, most_random}) {
      std::uint32_t last = 0;
      for (const float x : values) {
        const std::uint32_t code = encode_magnitude(x, book.decades, bits);
        ASSERT_GE(code, last) << x;
        last = code;
      }
    }
  }
}

// With any scale, infinite and denormal inverses among them.
TEST(CodeBook, the_largest_of_a_block_keeps_the_largest_code_whatever_the_random_bits) {
  std::vector<float> values = {0x1p-126f, 0x1.fffffcp125f, 0x1.8p127f, 0x1.fffffep127f,
                               std::numeric_limits<float>::infinity()};
  for (const float x : adversarial(20000, 11))
    if (std::abs(x) >= 0x1p-126f) values.push_back(std::abs(x));
  for (const float x : values) {
    const float inverse = inverse_scale(stored_scale(x, false));
    const float root_inverse = inverse_scale(stored_scale(x, true));
    for (const std::uint32_t random : {least_random, most_random}) {
      ASSERT_EQ(encode_signed(x, inverse, random), 127) << x;
      ASSERT_EQ(encode_signed(-x, inverse, random), 255) << x;
      ASSERT_EQ(encode_root(x, root_inverse, random), 255) << x;
    }
  }
}

TEST(CodeBook, signed_codes_keep_the_sign_and_nan_is_the_largest_without_one) {
  for (std::uint32_t k = 0; k < 128; ++k) {
    const float value = decode_signed(static_cast<std::uint8_t>(k), 3.0f);
    ASSERT_EQ(decode_signed(static_cast<std::uint8_t>(k | 0x80), 3.0f), -value);
    ASSERT_EQ(encode_signed(value, 1.0f / 3.0f, most_random), k);
    ASSERT_EQ(encode_signed(-value, 1.0f / 3.0f, most_random), k | 0x80);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float negative = std::bit_cast<float>(std::bit_cast<std::uint32_t>(nan) | 0x80000000u);
  for (const std::uint32_t random : {least_random, most_random}) {
    EXPECT_EQ(encode_signed(nan, 1.0f, random), 127);
    EXPECT_EQ(encode_signed(negative, 1.0f, random), 127);
  }
}

TEST(CodeBook, root_above_0_never_becomes_0) {
  for (const float root : {0x1p-149f, 0x1p-126f, 1e-30f, 1e-9f, 1.0f}) {
    for (const float scale : {0x1p-149f, 0x1p-126f, 1e-20f, 1.0f, 0x1.fffffep127f}) {
      if (root > scale) continue;
      const std::uint8_t code = encode_root(root, inverse_scale(scale), least_random);
      ASSERT_GE(code, 1) << root << " of " << scale;
    }
  }
  EXPECT_EQ(encode_root(0.0f, 1.0f, most_random), 0);
  EXPECT_EQ(encode_signed(0.0f, 1.0f, most_random), 0);
}

TEST(CodeBook, block_of_nothing_above_denormals_decodes_to_nothing_larger_than_its_scale) {
  for (const float scale : {0.0f, 0x1p-149f, 0x1.8p-130f, 0x1.fffffcp-127f}) {
    EXPECT_EQ(inverse_scale(scale), 0.0f);
    EXPECT_EQ(decode_signed(encode_signed(scale, inverse_scale(scale), most_random), scale), 0.0f);
    EXPECT_LE(decode_squared(encode_root(scale, inverse_scale(scale), most_random), scale), scale);
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

// Lion's moment, halfway between two codes beside one element of each block that is its scale: 1 where it
// went up.
std::vector<float> ups_of_codes(std::uint64_t seed, std::uint64_t step, std::uint64_t first) {
  const UpdateCase c = {.arguments = {.kind = OptimizerKind::lion, .beta2 = 0.0, .step = step, .seed = seed},
                        .moments = MomentDType::int8,
                        .numel = samples,
                        .first_element = first};
  const float low = decode_magnitude(80, signed_decades), high = decode_magnitude(81, signed_decades);
  UpdateValues values = values_of(c, Inputs::ordinary, 1);
  std::vector<float> gradient(samples, (low + high) / 2);
  for (std::size_t i = 0; i < samples; i += quantised_block_numel) gradient[i] = 1.0f;
  values.gradient = encoded(gradient, DType::f32);
  values = updated(c, values, best_isa());
  std::vector<float> ups;
  for (std::size_t i = 0; i < samples; ++i) {
    if (i % quantised_block_numel == 0) continue;
    EXPECT_TRUE(values.moments[0][i] == 80 || values.moments[0][i] == 81);
    ups.push_back(values.moments[0][i] == 81 ? 2.0f : 0.0f);
  }
  return ups;
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

TEST(StochasticRounding, codes_of_neighbours_steps_seeds_and_stretches_are_drawn_independently) {
  const std::vector<float> base = ups_of_codes(1, 2, 0);
  const double allowed = five_sigma * std::sqrt(0.25 * 0.75 / samples) + 0x1p-10;
  EXPECT_NEAR(share_up(base), 0.5, allowed);
  for (const std::size_t shift : {1, 2, 16, 63, 4032})
    EXPECT_NEAR(share_of_both(base, base, shift), 0.25, allowed) << shift;
  for (const std::vector<float>& other :
       {ups_of_codes(1, 3, 0), ups_of_codes(2, 2, 0), ups_of_codes(1, 2, std::uint64_t{1} << 32)})
    EXPECT_NEAR(share_of_both(base, other), 0.25, allowed);
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

// Whether two steps of a whole span and two of its parts are four of the whole.
void expect_cuts_keep_the_bits(UpdateCase c, std::uint64_t part) {
  const UpdateValues start = values_of(c, Inputs::ordinary, 2);
  UpdateValues whole = start;
  for (c.arguments.step = 1; c.arguments.step <= 4; ++c.arguments.step) whole = updated(c, whole, best_isa());

  UpdateValues resumed = start;
  for (c.arguments.step = 1; c.arguments.step <= 2; ++c.arguments.step)
    resumed = updated(c, resumed, best_isa());
  for (c.arguments.step = 3; c.arguments.step <= 4; ++c.arguments.step) {
    resumed = updated(c, resumed, [&](const UpdateSpan& span) {
      for (std::uint64_t begin = 0; begin < span.numel; begin += part)
        optimizer_update(part_of(span, begin, std::min(part, span.numel - begin)), c.arguments);
    });
  }
  EXPECT_EQ(difference(c, whole, resumed), "");
}

TEST(StochasticRounding, a_resumed_run_in_other_cuts_has_the_bits_of_the_whole_run) {
  const UpdateCase c = {.arguments = {.amsgrad = true, .seed = 21},
                        .master = MasterDType::bf16,
                        .moments = MomentDType::bf16,
                        .numel = 3000,
                        .first_element = (std::uint64_t{1} << 32) - 1000};
  expect_cuts_keep_the_bits(c, 777);
}

TEST(StochasticRounding, a_resumed_run_of_8_bit_moments_in_other_cuts_has_the_bits_of_the_whole_run) {
  for (const MasterDType master : {MasterDType::f32, MasterDType::bf16}) {
    const UpdateCase c = {.arguments = {.amsgrad = true, .seed = 21},
                          .master = master,
                          .moments = MomentDType::int8,
                          .numel = 3000,
                          .first_element = (std::uint64_t{1} << 32) - 16 * quantised_block_numel};
    expect_cuts_keep_the_bits(c, 13 * quantised_block_numel);
  }
}

}  // namespace
}  // namespace headrace::test
