// Element types and the scalar conversions between them: round to nearest even, denormals kept, NaN stays
// NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headrace {

enum class DType : std::uint8_t { f32, bf16 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}
constexpr std::string_view name_of(DType dtype) {
  return dtype == DType::f32 ? "fp32" : "bf16";
}

// bfloat16 as stored: the upper half of an IEEE binary32.
struct bf16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

constexpr bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};  // quiet NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace headrace
