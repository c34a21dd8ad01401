// The scalar conversions of dtype.h against the CPU's own.
#include <gtest/gtest.h>

#include "unit/cpu_adam/arrays.h"
#include "unit/cpu_adam/isa_test.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace::test {
namespace {

#if defined(__x86_64__)

[[gnu::target("avx,f16c")]] float widened_avx2(fp16 x) {
  return _cvtsh_ss(x.bits);
}
[[gnu::target("avx,f16c")]] std::uint16_t halved_avx2(float x) {
  return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

class Fp16 : public testing::Test {
 protected:
  void SetUp() override {
    if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "this CPU has no F16C";
  }
};

TEST_F(Fp16, every_half_widens_to_the_bits_of_f16c) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const fp16 half{static_cast<std::uint16_t>(bits)};
    ASSERT_EQ(std::bit_cast<std::uint32_t>(to_float(half)), std::bit_cast<std::uint32_t>(widened_avx2(half)))
        << bits;
  }
}

// Every float whose lower 13 bits decide the rounding: below, at and above the halfway point and its ends,
// for every sign, exponent and upper mantissa.
TEST_F(Fp16, floats_round_to_the_bits_of_f16c) {
  for (std::uint32_t upper = 0; upper < 1u << 19; ++upper) {
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x1fffu}) {
      const float x = std::bit_cast<float>(upper << 13 | lower);
      ASSERT_EQ(to_fp16(x).bits, halved_avx2(x)) << std::hexfloat << x;
    }
  }
}

#endif

TEST(DTypes, every_value_of_16_bits_survives_fp32) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const fp16 half{static_cast<std::uint16_t>(bits)};
    const bf16 brain{static_cast<std::uint16_t>(bits)};
    if (!std::isnan(to_float(half))) {
      ASSERT_EQ(to_fp16(to_float(half)).bits, bits);
    }
    if (!std::isnan(to_float(brain))) {
      ASSERT_EQ(to_bf16(to_float(brain)).bits, bits);
    }
  }
}

}  // namespace
}  // namespace headrace::test
