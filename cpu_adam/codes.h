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

// decode_magnitude as factor * (k + 1/2) + rest. In decade e that is 8^(e - decades) * (7/8 * (k + 1) / 2^e -
// 3/4); the exponent of k + 1/2, e or, for code 0, -1, is the index modulo 16.
template <int decades>
struct DecodeTables {
  alignas(64) float factor[16] = {}, rest[16] = {};

  constexpr DecodeTables() {
    for (int e = 0; e <= decades; ++e) {
      const float step = 0.875f * power_of_2(3 * (e - decades) - e);
      factor[(127 + e) % 16] = step;
      rest[(127 + e) % 16] = 0.5f * step - 0.75f * power_of_2(3 * (e - decades));
    }
  }
};
template <int decades>
constexpr DecodeTables<decades> decode_tables;

template <class V, int decades>
[[gnu::always_inline]] inline typename V::Floats decoded_magnitude(typename V::Integers codes) {
  constexpr const DecodeTables<decades>& tables = decode_tables<decades>;
  const auto k = V::converted(codes) + V::set(0.5f);
  const auto exponent = V::bits(k) >> 23;
  return V::fma(V::lookup16(tables.factor, exponent), k, V::lookup16(tables.rest, exponent));
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

// Of x * inverse.
template <class V, int decades>
[[gnu::always_inline]] inline typename V::Integers encoded_magnitude(typename V::Floats x,
                                                                     typename V::Floats inverse) {
  constexpr const EncodeTables<decades>& tables = encode_tables<decades>;
  constexpr float least = 0x1.000002p-24f;  // just above 8^-8, whose code is 0 in both books
  const auto a = V::larger(V::smaller(x * inverse, V::set(1.0f)), V::set(least));
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

// First moments: decode_signed, of codes with their sign extended, and encode_signed.
template <class V>
[[gnu::always_inline]] inline typename V::Floats decoded_signed(typename V::Integers codes,
                                                                typename V::Floats scale) {
  const auto x = decoded_magnitude<V, signed_decades>(codes & 0x7fu) * scale;
  return V::floats(V::bits(x) | (codes & 0x80000000u));
}
template <class V>
[[gnu::always_inline]] inline typename V::Integers encoded_signed(typename V::Floats x,
                                                                  typename V::Floats inverse) {
  const auto sign = x == x ? V::bits(x) >> 24 : V::splat(0);
  return (sign & 0x80u) | encoded_magnitude<V, signed_decades>(magnitude<V>(x), inverse);
}

// Second moments: decode_squared, and encode_root of their roots.
template <class V>
[[gnu::always_inline]] inline typename V::Floats decoded_squared(typename V::Integers codes,
                                                                 typename V::Floats scale) {
  const auto root = decoded_magnitude<V, unsigned_decades>(codes) * scale;
  return root * root;
}
template <class V>
[[gnu::always_inline]] inline typename V::Integers encoded_root(typename V::Floats root,
                                                                typename V::Floats inverse) {
  const auto code = encoded_magnitude<V, unsigned_decades>(root, inverse);
  const auto bits = V::bits(root), least = bits < 1u ? bits : V::splat(1);
  return code > least ? code : least;
}

}  // namespace
}  // namespace headrace
