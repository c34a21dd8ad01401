// The 8-bit code books of state_codes.h over a vector type V (vector_scalar.h), by the same exact operations.
#pragma once

#include "headrace/state_codes.h"

namespace headrace {
namespace {

inline constexpr std::uint32_t bits_of_one = 0x3f800000u;

// decode_magnitude. value(k) = 8^(e - decades) * (7/8 * (k + 1) / 2^e - 3/4), all of it exact; the powers of
// 2 are made from the exponent of float(k).
template <class V, int decades>
[[gnu::always_inline]] inline typename V::Floats decoded_magnitude(typename V::Integers codes) {
  const auto k = V::converted(codes);
  const auto exponent = V::bits(k) & 0x7f800000u;  // (127 + e) << 23
  const auto fraction = V::floats(2 * bits_of_one - exponent);
  const auto decade = V::floats(exponent + exponent + exponent - ((2 * 127u + 3 * decades) << 23));
  const auto seven_eighths = V::set(0.875f);
  const auto value = decade * V::fma(V::fma(k, seven_eighths, seven_eighths), fraction, V::set(-0.75f));
  return codes != 0 ? value : V::set(0.0f);
}

// encode_magnitude of x * inverse.
template <class V, int decades>
[[gnu::always_inline]] inline typename V::Integers encoded_magnitude(typename V::Floats x,
                                                                     typename V::Floats inverse) {
  const auto bits = V::bits(V::smaller(x * inverse, V::set(1.0f)));
  const auto below = V::third(126u - ((bits - 1u) >> 23));  // past every decade where bits are 0
  const auto below_exponent = below << 23;
  const auto in_decade = V::floats(bits + below_exponent + below_exponent + below_exponent);
  constexpr std::uint32_t most_steps =
      std::bit_cast<std::uint32_t>(1.0f / 0.875f) + (static_cast<std::uint32_t>(decades) << 23);
  const auto steps = V::floats(most_steps - below_exponent);
  // The sum's low bits are the product rounded to nearest even.
  const auto rounded = V::bits((in_decade - V::set(0.125f)) * steps + V::set(0x1p23f));
  const auto code = V::shifted_right(V::splat(1u << decades), below) +
                    (rounded - std::bit_cast<std::uint32_t>(0x1p23f) - 1u);
  return below > static_cast<std::uint32_t>(decades) ? V::splat(0) : code;
}

template <class V>
[[gnu::always_inline]] inline typename V::Floats magnitude(typename V::Floats x) {
  return V::floats(V::bits(x) & 0x7fffffffu);
}

// First moments: decode_signed and encode_signed.
template <class V>
[[gnu::always_inline]] inline typename V::Floats decoded_signed(typename V::Integers codes,
                                                                typename V::Floats scale) {
  const auto x = decoded_magnitude<V, signed_decades>(codes & 0x7fu) * scale;
  return V::floats(V::bits(x) | (codes & 0x80u) << 24);
}
template <class V>
[[gnu::always_inline]] inline typename V::Integers encoded_signed(typename V::Floats x,
                                                                  typename V::Floats inverse) {
  const auto sign = V::bits(x) >> 24 & 0x80u;
  return (x == x ? sign : V::splat(0)) | encoded_magnitude<V, signed_decades>(magnitude<V>(x), inverse);
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
  const auto least = root > V::set(0.0f) ? V::splat(1) : V::splat(0);
  return code > least ? code : least;
}

}  // namespace
}  // namespace headrace
