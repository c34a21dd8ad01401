// Conversions of half precision on a CUDA device. Those of bf16 are tested with the kernels that make them.
#include <cmath>

#include "tests/gpu/gpu_harness.h"
#include "tests/gpu/half_kernels.h"

namespace headrace::test {
namespace {

class Elements : public GpuTest {};

double value_of_half(std::uint16_t bits) {
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

// x to the nearest multiple of half precision's step there, to even when two are as near.
double nearest_half(float x) {
  if (!std::isfinite(x)) return x;
  const int exponent = x == 0 ? -14 : std::max(-14, std::ilogb(x));
  const double step = std::ldexp(1, exponent - 10), nearest = std::nearbyint(x / step) * step;
  return std::abs(nearest) > 65504 ? std::copysign(INFINITY, nearest) : nearest;
}

TEST_F(Elements, every_half_widens_to_its_value) {
  std::vector<std::uint16_t> halves(0x10000);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  for (const std::size_t offset : {0, 2}) {
    const Operand in(*device, halves, offset), out(*device, std::vector<float>(halves.size()));
    floats_of(queue(), in.data<std::uint16_t>(), out.data<float>(), 0x10000);
    const std::vector<float> result = out.values<float>();
    for (std::size_t i = 0; i < halves.size(); ++i)
      ASSERT_TRUE(same_bits(static_cast<double>(result[i]), value_of_half(halves[i]))) << i;
  }
}

TEST_F(Elements, rounding_to_half_is_to_nearest_even_over_all_upper_halves) {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0xf000u, 0xffffu})
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
  for (const std::size_t offset : {0, 2}) {
    const Operand in(*device, values), out(*device, std::vector<std::uint16_t>(values.size()), offset);
    halves_of(queue(), in.data<float>(), out.data<std::uint16_t>(), static_cast<std::int64_t>(values.size()));
    const auto result = out.values<std::uint16_t>();
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_TRUE(same_bits(value_of_half(result[i]), nearest_half(values[i]))) << std::hexfloat << values[i];
  }
}

}  // namespace
}  // namespace headrace::test
