// Rounding to 16 bits over a vector type V (vector_scalar.h): dtype.h's to nearest, and state_codes.h's
// stochastic one with its random bits.
#pragma once

#include <type_traits>

#include "cpu_adam/extent.h"
#include "headrace/dtype.h"
#include "headrace/state_codes.h"

namespace headrace {
namespace {

// to_bf16: x whose upper half is the result, as a store of bf16 takes it. VCVTNEPS2BF16 would flush
// denormals.
template <class V>
[[gnu::always_inline]] inline typename V::Floats nearest_upper(typename V::Floats x) {
  const auto bits = V::bits(x);
  const auto nearest = bits + ((bits >> 16 & 1u) + 0x7fffu);
  return V::floats(x != x ? bits | 0x00400000u : nearest);
}

// to_bf16_stochastic in the same way; `random` below 2^16. x is what arithmetic gave or a bf16 number, so
// that NaN stays NaN without the bit that makes it quiet.
template <class V>
[[gnu::always_inline]] inline typename V::Floats stochastic_upper(typename V::Floats x,
                                                                  typename V::Integers random) {
  const auto bits = V::bits(x);
  return V::floats(bits + (x == x ? random : V::splat(0)));
}

// The bf16 of an upper half as a float.
template <class V>
[[gnu::always_inline]] inline typename V::Floats upper_half(typename V::Floats x) {
  return V::floats(V::bits(x) & 0xffff0000u);
}

// x rounded to T to nearest, as a float.
template <class V, class T>
[[gnu::always_inline]] inline typename V::Floats nearest(typename V::Floats x) {
  if constexpr (std::is_same_v<T, bf16>) return upper_half<V>(nearest_upper<V>(x));
  if constexpr (std::is_same_v<T, fp16>) return V::nearest_fp16(x);
  return x;
}

// moment_bits and more_bits of the elements of a span, which share the upper half of their numbers.
template <class V>
class RandomBits {
 public:
  using Integers = typename V::Integers;

  [[gnu::always_inline]] RandomBits(std::uint64_t stretch, std::uint64_t first_element)
      : low_key_(static_cast<std::uint32_t>(stretch)),
        high_key_(V::splat(static_cast<std::uint32_t>(stretch >> 32))),
        first_(static_cast<std::uint32_t>(first_element)) {}

  // Of elements i, i + 1, ... of the span.
  template <int vectors>
  [[gnu::always_inline]] void of_moments(std::uint64_t i, Integers (&bits)[vectors]) const {
    Integers number = V::splat(first_ + static_cast<std::uint32_t>(i)) + V::lanes();
    for (int j = 0; j < vectors; ++j, number += static_cast<std::uint32_t>(V::width)) {
      const Integers x = number ^ low_key_;
      bits[j] = mixed(x ^ (x >> 16));
    }
  }
  // The same of a quantisation block: its elements share the bits that the first line above shifts.
  template <int vectors>
  [[gnu::always_inline]] void of_block(std::uint64_t i, Integers (&bits)[vectors]) const {
    const std::uint32_t x = (first_ + static_cast<std::uint32_t>(i)) ^ low_key_;
    const Integers first = V::splat(x ^ x >> 16);
    for (int j = 0; j < vectors; ++j)
      bits[j] = mixed(first ^ (V::lanes() + static_cast<std::uint32_t>(j * V::width)));
  }
  [[gnu::always_inline]] static Integers more(Integers of_moments) {
    Integers x = of_moments * 0x9e3779b1u;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    return x ^ (x >> 13);
  }
  // The 16 bits of moment k, from moment_bits and more_bits.
  template <int k>
  [[gnu::always_inline]] static Integers drawn(Integers of_moments, Integers more) {
    return k == 0 ? of_moments & 0xffffu : (k == 1 ? of_moments : more) >> 16;
  }

 private:
  [[gnu::always_inline]] Integers mixed(Integers x) const {
    x *= 0x7feb352du;
    x ^= x >> 15;
    x += high_key_;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
  }

  std::uint32_t low_key_;
  Integers high_key_;
  std::uint32_t first_;
};

}  // namespace
}  // namespace headrace
