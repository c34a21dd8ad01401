// The 8-bit code books of state_codes.h over a vector type V (vector_scalar.h): the scalar functions'
// operations, or exact ones in their place, so the bits are theirs; what depends on the decade alone comes
// from tables.
#pragma once

#include "headrace/state_codes.h"

namespace headrace {
namespace {

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

// code_decade by its argument; `first` also takes off the bits of code_rounder.
template <int decades>
struct DecadeTables {
  alignas(64) float border[16] = {}, steps[16] = {};
  alignas(64) std::uint32_t first[16] = {};

  constexpr DecadeTables() {
    for (int below = 0; below < 8; ++below) {
      const CodeDecade decade = code_decade(below, decades);
      border[below] = decade.border;
      steps[below] = decade.steps;
      first[below] = decade.first - (std::bit_cast<std::uint32_t>(code_rounder) >> code_fraction_bits);
    }
  }
};
template <int decades>
constexpr DecadeTables<decades> decade_tables;

// encode_magnitude of magnitudes up to 1.
template <class V, int decades>
[[gnu::always_inline]] inline typename V::Integers encoded_magnitude(typename V::Floats scaled,
                                                                     typename V::Integers random) {
  constexpr const DecadeTables<decades>& tables = decade_tables<decades>;
  constexpr float least = 0x1.000002p-24f;  // just above 8^-8: the last decade of both books, as all below it
  // The exponent, with powers of 2 taken to the one below, from that of 1 down.
  const auto halvings =
      (std::bit_cast<std::uint32_t>(1.0f) - V::bits(V::larger(scaled, V::set(least)))) >> 23;
  const auto below = V::third(halvings);
  const auto sum =
      (scaled - V::lookup8(tables.border, below)) * V::lookup8(tables.steps, below) + V::set(code_rounder);
  return ((V::bits(sum) + (random >> (16 - code_fraction_bits))) >> code_fraction_bits) +
         V::lookup8(tables.first, below);
}

template <class V>
[[gnu::always_inline]] inline typename V::Floats magnitude(typename V::Floats x) {
  return V::floats(V::bits(x) & 0x7fffffffu);
}

// First moments: decode_signed, of codes with their sign extended, and encode_signed of four vectors with
// their random bits.
template <class V>
[[gnu::always_inline]] inline typename V::Floats decoded_signed(typename V::Integers codes,
                                                                typename V::Floats scale) {
  const auto x = decoded_magnitude<V, signed_decades>(codes & 0x7fu) * scale;
  return V::floats(V::bits(x) | (codes & 0x80000000u));
}
template <class V>
[[gnu::always_inline]] inline void encode_signed(std::uint8_t* to, const typename V::Floats* four,
                                                 typename V::Floats inverse,
                                                 const typename V::Integers (&random)[4]) {
  typename V::Floats scaled[4];
  typename V::Integers codes[4];
  for (int i = 0; i < 4; ++i) {
    scaled[i] = V::larger(V::smaller(four[i] * inverse, V::set(1.0f)), V::set(-1.0f));  // NaN is 1
    codes[i] = encoded_magnitude<V, signed_decades>(magnitude<V>(scaled[i]), random[i]);
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
                                                typename V::Floats inverse,
                                                const typename V::Integers (&random)[4]) {
  typename V::Integers codes[4];
  for (int i = 0; i < 4; ++i) {
    const auto code =
        encoded_magnitude<V, unsigned_decades>(V::smaller(four[i] * inverse, V::set(1.0f)), random[i]);
    const auto bits = V::bits(four[i]), least = bits < 1u ? bits : V::splat(1);
    codes[i] = code > least ? code : least;
  }
  V::store_codes(to, codes);
}

}  // namespace
}  // namespace headrace
