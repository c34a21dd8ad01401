// Sixteen fp32 lanes in the compiler's own vector type, for the bodies of row_kernels_body.h.
//
// The lanes are part of the arithmetic: every instruction set computes the same sixteen partial sums and
// combines them in the same order, so results do not depend on it. No fma is used (the baseline has none).
// Everything is always inlined and in the unnamed namespace: nothing compiled with wide instructions has a
// name that another file's could be merged with.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "headrace/dtype.h"

namespace headrace {
namespace {

inline constexpr std::int64_t lanes = 16;
using Floats [[gnu::vector_size(64)]] = float;
using Words [[gnu::vector_size(64)]] = std::uint32_t;
using Integers [[gnu::vector_size(64)]] = std::int32_t;
using Halves [[gnu::vector_size(32)]] = std::uint16_t;
// The same where they lie in arrays. Values are not of these types: a template drops their attributes, and
// its references then promise an alignment that the value does not have.
using FloatsInMemory [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;
using HalvesInMemory [[gnu::vector_size(32), gnu::aligned(2), gnu::may_alias]] = std::uint16_t;

#define HEADRACE_INLINE [[gnu::always_inline]] inline

HEADRACE_INLINE Floats broadcast(float x) {
  return Floats{} + x;
}
HEADRACE_INLINE Floats load(const float* p) {
  return *reinterpret_cast<const FloatsInMemory*>(p);
}
HEADRACE_INLINE Floats load(const bf16* p) {
  const Halves halves = *reinterpret_cast<const HalvesInMemory*>(p);
  return std::bit_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}
// to_float(fp16) of dtype.h on sixteen lanes.
HEADRACE_INLINE Floats load(const fp16* p) {
  const Words bits = __builtin_convertvector(*reinterpret_cast<const HalvesInMemory*>(p), Words);
  const Words sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  const Words normal = (magnitude << 13) + (112u << 23);
  const Words denormal =
      std::bit_cast<Words>(__builtin_convertvector(std::bit_cast<Integers>(magnitude), Floats) * 0x1p-24f);
  const Words quiet = magnitude > 0x7c00u ? Words{} + 0x00400000u : Words{};
  const Words infinite_or_nan = (magnitude << 13) | 0x7f800000u | quiet;
  const Words finite = magnitude >= 0x400u ? normal : denormal;
  return std::bit_cast<Floats>(sign | (magnitude >= 0x7c00u ? infinite_or_nan : finite));
}
HEADRACE_INLINE void store(float* p, Floats x) {
  *reinterpret_cast<FloatsInMemory*>(p) = x;
}

// to_bf16 of dtype.h on sixteen lanes, as the upper halves.
HEADRACE_INLINE Words rounded_words(Floats x) {
  const Words bits = std::bit_cast<Words>(x);
  const Words nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Words quiet_nan = (bits >> 16) | 0x40u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : nearest;
}
HEADRACE_INLINE void store(bf16* p, Floats x) {
  *reinterpret_cast<HalvesInMemory*>(p) = __builtin_convertvector(rounded_words(x), Halves);
}

// to_fp16 of dtype.h on sixteen lanes.
HEADRACE_INLINE void store(fp16* p, Floats x) {
  const Words bits = std::bit_cast<Words>(x);
  const Words sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  const Words normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const Words denormal = std::bit_cast<Words>(std::bit_cast<Floats>(magnitude) + 0.5f) - 0x3f000000u;
  const Words nan = ((magnitude >> 13) & 0x3ffu) | 0x7e00u;
  const Words finite = magnitude >= 0x38800000u ? normal : denormal;
  const Words not_nan = magnitude >= 0x477ff000u ? Words{} + 0x7c00u : finite;
  const Words half = sign | (magnitude > 0x7f800000u ? nan : not_nan);
  *reinterpret_cast<HalvesInMemory*>(p) = __builtin_convertvector(half, Halves);
}

// The first n (< lanes) elements; the other lanes are `fill`, and are not written.
template <class T>
HEADRACE_INLINE Floats load_first(const T* p, std::int64_t n, float fill = 0.0f) {
  Floats x = broadcast(fill);
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, float>)
      x[i] = p[i];
    else
      x[i] = to_float(p[i]);
  }
  return x;
}
template <class T>
HEADRACE_INLINE void store_first(T* p, Floats x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, bf16>)
      p[i] = to_bf16(x[i]);
    else if constexpr (std::is_same_v<T, fp16>)
      p[i] = to_fp16(x[i]);
    else
      p[i] = x[i];
  }
}

// Calls body(i, access) for each group of lanes of [0, n); access loads and stores whole groups, or the first
// few elements of the last one.
struct Whole {
  template <class T>
  HEADRACE_INLINE Floats get(const T* p, float = 0.0f) const {
    return load(p);
  }
  template <class T>
  HEADRACE_INLINE void put(T* p, Floats x) const {
    store(p, x);
  }
};
struct First {
  std::int64_t n;
  template <class T>
  HEADRACE_INLINE Floats get(const T* p, float fill = 0.0f) const {
    return load_first(p, n, fill);
  }
  template <class T>
  HEADRACE_INLINE void put(T* p, Floats x) const {
    store_first(p, x, n);
  }
};
template <class Body>
HEADRACE_INLINE void for_each_group(std::int64_t n, Body&& body) {
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, Whole{});
  if (i < n) body(i, First{n - i});
}

HEADRACE_INLINE float sum_of(Floats x) {
  float s[lanes / 2];
  for (int i = 0; i < 8; ++i) s[i] = x[i] + x[i + 8];
  for (int i = 0; i < 4; ++i) s[i] += s[i + 4];
  return (s[0] + s[2]) + (s[1] + s[3]);
}
// NaN in any lane gives NaN or the largest other lane: the exponentials that follow carry NaN onward.
HEADRACE_INLINE Floats larger(Floats a, Floats b) {
  return a > b ? a : b;
}
HEADRACE_INLINE float largest_of(Floats x) {
  float m = x[0];
  for (int i = 1; i < lanes; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

// e^x to about 1 ulp on [-87, 88], clamped outside; NaN stays NaN.
HEADRACE_INLINE Floats exp_of(Floats x) {
  x = x < -87.0f ? broadcast(-87.0f) : x;
  x = x > 88.0f ? broadcast(88.0f) : x;
  constexpr float round_to_integer = 12582912.0f;  // 1.5 * 2^23: the sum has no fraction bits
  const Floats shifted = x * 1.44269504088896341f + round_to_integer;
  const Floats n = shifted - round_to_integer;
  const Floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  const Integers exponent = std::bit_cast<Integers>(shifted) - std::bit_cast<std::int32_t>(round_to_integer);
  return p * std::bit_cast<Floats>((exponent + 127) << 23);
}

}  // namespace
}  // namespace headrace
