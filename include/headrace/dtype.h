// Element types and the scalar conversions between them: round to nearest even, denormals kept, NaN stays
// NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headrace {

enum class DType : std::uint8_t { f32, bf16, f16 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}
constexpr std::string_view name_of(DType dtype) {
  return dtype == DType::f32 ? "fp32" : dtype == DType::bf16 ? "bf16" : "fp16";
}

// IEEE binary16 as stored.
struct fp16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(fp16 value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16, magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u)  // infinity, or NaN, made quiet as the hardware does
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 |
                                (magnitude > 0x7c00u ? 0x00400000u : 0u));
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
}

// The bits of VCVTPS2PH with rounding to nearest even.
constexpr fp16 to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  const auto half = [sign](std::uint32_t rest) { return fp16{static_cast<std::uint16_t>(sign | rest)}; };
  if (magnitude > 0x7f800000u) return half(0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return half(0x7c00u);  // from halfway past the largest: infinity
  if (magnitude >= 0x38800000u)                        // 2^-14, the smallest normal
    return half((magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
  // A denormal is a multiple of 2^-24: adding 0.5 leaves it, rounded, in the low bits.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return half(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
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

// Element i of an array of `dtype` in host memory, and the same rounded to it.
inline float element_at(const void* values, std::uint64_t i, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(values)[i];
    case DType::bf16:
      return to_float(static_cast<const bf16*>(values)[i]);
    case DType::f16:
      return to_float(static_cast<const fp16*>(values)[i]);
  }
  return 0;
}
inline void set_element(void* values, std::uint64_t i, DType dtype, float value) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(values)[i] = value;
      break;
    case DType::bf16:
      static_cast<bf16*>(values)[i] = to_bf16(value);
      break;
    case DType::f16:
      static_cast<fp16*>(values)[i] = to_fp16(value);
      break;
  }
}

}  // namespace headrace
