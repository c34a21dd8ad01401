// How values of an optimizer's state are kept in fewer bits, as scalar functions: what every kernel must
// give, bit by bit, and what readers of states decode with. No part of the host's library beyond <bit>, so
// that kernels of a device include it.
#pragma once

#include <bit>
#include <cstdint>

#include "headrace/dtype.h"
#include "headrace/splitmix.h"

namespace headrace {

// ---- Stochastic rounding. The random bits are a function of seed, step, element and array alone, so that
// resuming, resharding and any cut into blocks keep them.

constexpr std::uint64_t rounding_key(std::uint64_t seed, std::uint64_t step) {
  return splitmix64(splitmix64(seed) + step);
}
// The key of the 2^32 elements that share the upper half of their index.
constexpr std::uint64_t stretch_key(std::uint64_t rounding_key, std::uint64_t element) {
  return splitmix64(rounding_key ^ (element >> 32));
}
// 32 random bits of an element: the lower half for the first moment, the upper half for the second.
constexpr std::uint32_t moment_bits(std::uint64_t stretch_key, std::uint32_t element_low) {
  std::uint32_t x = element_low ^ static_cast<std::uint32_t>(stretch_key);
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x += static_cast<std::uint32_t>(stretch_key >> 32);
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}
// Another 32, from those: the lower half for the master parameter, the upper half for the third state.
constexpr std::uint32_t more_bits(std::uint32_t moment_bits) {
  std::uint32_t x = moment_bits * 0x9e3779b1u;
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  return x ^ (x >> 13);
}

// To bf16, up with the probability of the rest that is cut off; `random` below 2^16. Infinities stay, NaN
// becomes quiet, and a value past the largest may become infinite, as with rounding to nearest.
constexpr bf16 to_bf16_stochastic(float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + random) >> 16)};
}

// ---- 8 bits a value: a code book over [0, 1] times one fp32 scale, the largest magnitude of a quantisation
// block, as Dettmers et al. (2022) do it. The code book is dynamic: decades of base 8, each with half the
// fractions of the one above it. With k the code and e = floor(log2(k)), value(k) = 8^(e - decades) * (1/8 +
// 7/8 * (k - 2^e + 1) / 2^e); value(0) = 0. All are exact in fp32. Signed (bit 7 is the sign, decades = 6):
// first moments. Unsigned (decades = 7): roots of second moments, so that their range is squared; one above 0
// never becomes 0, which would make a step endless.
//
// A value between two codes becomes one of them by the element's random bits, so that it is kept on the
// average: to the nearest, a moment that moves by less than half a step in each update would stand still, and
// what stands still grows with the scale of its block. A code's own value stays, and so the largest.

inline constexpr std::uint64_t quantised_block_numel = 64;  // parameters start on such borders (units.h)
inline constexpr int signed_decades = 6, unsigned_decades = 7;

constexpr float power_of_2(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
}

constexpr float decode_magnitude(std::uint32_t code, int decades) {
  if (code == 0) return 0.0f;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(code));
  const auto e = static_cast<std::int32_t>(bits >> 23) - 127;
  const float one_to_two = std::bit_cast<float>((bits & 0x007fffffu) | 0x3f800000u);
  return power_of_2(3 * (e - decades)) * (0.875f * one_to_two + (0.875f * power_of_2(-e) - 0.75f));
}

// A decade's codes are `first` and those after it, a step apart from `border` on; the lowest begins at 0.
struct CodeDecade {
  float border, steps;  // steps: how many make 1
  std::uint32_t first;
};
// Of the magnitudes in (8^-(below + 1), 8^-below].
constexpr CodeDecade code_decade(int below, int decades) {
  const int e = decades - below;
  if (e <= 0) return {0.0f, power_of_2(3 * decades), 0};
  return {power_of_2(-3 * (below + 1)), (1.0f / 0.875f) * power_of_2(e + 3 * below), (1u << e) - 1u};
}

// So many bits of a fraction of a step decide, beside as many random ones: too few for the error of decoding
// and of the division by the scale, below 2^-14 steps, to show. By it a moment that stays would creep away.
inline constexpr int code_fraction_bits = 13;
// What a number of steps, at most 2^7, is added to for its sum to end in so many bits of fraction.
inline constexpr float code_rounder = 0x1p10f;

// One of the two codes beside a magnitude that was divided by its scale; above 1 and NaN as 1. `random` below
// 2^16; its upper bits count.
constexpr std::uint32_t encode_magnitude(float scaled, int decades, std::uint32_t random) {
  const float a = scaled < 1.0f ? scaled : 1.0f;
  const auto bits = std::bit_cast<std::uint32_t>(a);
  if (bits == 0) return 0;
  const CodeDecade decade = code_decade((126 - static_cast<std::int32_t>((bits - 1) >> 23)) / 3, decades);
  const float sum = (a - decade.border) * decade.steps + code_rounder;
  const std::uint32_t fixed = std::bit_cast<std::uint32_t>(sum) - std::bit_cast<std::uint32_t>(code_rounder);
  return decade.first + ((fixed + (random >> (16 - code_fraction_bits))) >> code_fraction_bits);
}

// The scale of a block whose largest magnitude, NaN left out, is `largest`: an infinite one is kept as the
// largest that decodes finite, so that its neighbours, which are multiples of the scale, stay finite too.
// They keep what the code book has beside so large a scale. NaN changes neither scale nor neighbours.
inline constexpr float most_signed_scale = 0x1.fffffep127f;
inline constexpr float most_root_scale = 0x1.fffffep63f;  // no root of a finite number is larger
constexpr float stored_scale(float largest, bool squared) {
  const float most = squared ? most_root_scale : most_signed_scale;
  return largest < most ? largest : most;
}

// What magnitudes are multiplied by before they are encoded; 0 where a block holds nothing above the
// denormals, which then all become 0.
constexpr float inverse_scale(float scale) {
  return scale < 0x1p-126f ? 0.0f : 1.0f / scale;
}

// NaN as the largest of its block, without its sign, which differs between instruction sets.
constexpr std::uint8_t encode_signed(float value, float inverse_scale, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  const std::uint32_t sign = value == value ? bits >> 24 & 0x80u : 0;
  return static_cast<std::uint8_t>(sign |
                                   encode_magnitude(magnitude * inverse_scale, signed_decades, random));
}
constexpr float decode_signed(std::uint8_t code, float scale) {
  const float magnitude = decode_magnitude(code & 0x7fu, signed_decades) * scale;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (code & 0x80u) << 24);
}
// Of the root of a second moment.
constexpr std::uint8_t encode_root(float root, float inverse_scale, std::uint32_t random) {
  const std::uint32_t code = encode_magnitude(root * inverse_scale, unsigned_decades, random);
  return static_cast<std::uint8_t>(code == 0 && root > 0.0f ? 1u : code);
}
// The second moment itself.
constexpr float decode_squared(std::uint8_t code, float scale) {
  const float root = decode_magnitude(code, unsigned_decades) * scale;
  return root * root;
}

}  // namespace headrace
