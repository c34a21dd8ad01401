// The 8-bit code books of state_codes.h over a vector type V (vector_scalar.h). Every operation below but the
// last rounding of a code and the products with the scale is exact, so the bits are those of the scalar
// functions; what depends on the decade alone comes from tables.
#pragma once

#include "headrace/state_codes.h"

namespace headrace {
namespace {

constexpr float power_of_2(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
}

// decode_magnitude as (7/8 * (k + 1) - 3/4 * 2^e) * 4^e * 8^-decades, where 2^e is k without its fraction and
// 0 for code 0.
template <class V, int decades>
[[gnu::always_inline]] inline typename V::Floats decoded_magnitude(typename V::Integers codes) {
  constexpr float lowest = power_of_2(-3 * decades);
  const auto k = V::converted(codes);
  const auto power = V::floats(V::bits(k) & 0x7f800000u);
  const auto steps = V::fma(k, V::set(0.875f * lowest), V::set(0.875f * lowest));
  return V::fma(power, V::set(-0.75f * lowest), steps) * (power * power);
}

// encode_magnitude of `a` in (8^-(below + 1), 8^-below] as round((a - border) * steps) + first; `below` is
// the index. The rounded number is found in the low bits of a sum with 2^23, whose other bits `first` takes
// off.
template <int decades>
struct EncodeTables {
  alignas(64) float border[16] = {}, steps[16] = {};
  alignas(64) std::uint32_t first[16] = {};

  constexpr EncodeTables() {
    for (int below = 0; below < 8; ++below) {
      first[below] = 0u - std::bit_cast<std::uint32_t>(0x1p23f);
      if (below > decades) continue;  // code 0
      const int e = decades - below;
      border[below] = power_of_2(-3 * (below + 1));
      steps[below] = (1.0f / 0.875f) * power_of_2(e + 3 * below);
      first[below] += (1u << e) - 1u;
    }
  }
};
template <int decades>
constexpr EncodeTables<decades> encode_tables;

// Of magnitudes up to 1.
template <class V, int decades>
[[gnu::always_inline]] inline typename V::Integers encoded_magnitude(typename V::Floats scaled) {
  constexpr const EncodeTables<decades>& tables = encode_tables<decades>;
  constexpr float least = 0x1.000002p-24f;  // just above 8^-8, whose code is 0 in both books
  const auto a = V::larger(scaled, V::set(least));
  // a's exponent, with powers of 2 taken to the one below, from that of 1 down.
  const auto halvings = (std::bit_cast<std::uint32_t>(1.0f) - V::bits(a)) >> 23;
  const auto below = V::third(halvings);
  const auto sum = (a - V::lookup8(tables.border, below)) * V::lookup8(tables.steps, below) + V::set(0x1p23f);
  return V::bits(sum) + V::lookup8(tables.first, below);
}

template <class V>
[[gnu::always_inline]] inline typename V::Floats magnitude(typename V::Floats x) {
  return V::floats(V::bits(x) & 0x7fffffffu);
}

// First moments: decode_signed, of codes with their sign extended, and encode_signed of four vectors.
template <class V>
[[gnu::always_inline]] inline typename V::Floats decoded_signed(typename V::Integers codes,
                                                                typename V::Floats scale) {
  const auto x = decoded_magnitude<V, signed_decades>(codes & 0x7fu) * scale;
  return V::floats(V::bits(x) | (codes & 0x80000000u));
}
template <class V>
[[gnu::always_inline]] inline void encode_signed(std::uint8_t* to, const typename V::Floats* four,
                                                 typename V::Floats inverse) {
  typename V::Floats scaled[4];
  typename V::Integers codes[4];
  for (int i = 0; i < 4; ++i) {
    scaled[i] = V::larger(V::smaller(four[i] * inverse, V::set(1.0f)), V::set(-1.0f));  // NaN is 1
    codes[i] = encoded_magnitude<V, signed_decades>(magnitude<V>(scaled[i]));
  }
  V::store_codes(to, codes, scaled);
}

// Second moments: decode_squared, and encode_root of their roots.
template <class V>
[[gnu::always_inline]] inline typename V::Floats decoded_squared(typename V::Integers codes,
                                                                 typename V::Floats scale) {
  const auto root = decoded_magnitude<V, unsigned_decades>(codes) * scale;
  return root * root;
}
template <class V>
[[gnu::always_inline]] inline void encode_roots(std::uint8_t* to, const typename V::Floats* four,
                                                typename V::Floats inverse) {
  typename V::Integers codes[4];
  for (int i = 0; i < 4; ++i) {
    const auto code = encoded_magnitude<V, unsigned_decades>(V::smaller(four[i] * inverse, V::set(1.0f)));
    const auto bits = V::bits(four[i]), least = bits < 1u ? bits : V::splat(1);
    codes[i] = code > least ? code : least;
  }
  V::store_codes(to, codes);
}

}  // namespace
}  // namespace headrace
