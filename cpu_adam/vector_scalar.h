// Vectors of one lane: the plain meaning of every kernel, and what runs on a CPU without AVX2. std::fma is
// exact without FMA instructions too.
//
// [Note: vector types] The kernels are written once over a vector type V and compiled once per instruction
// set. V is a struct in the unnamed namespace of its file and every function of the kernels is a template on
// it, so that nothing compiled with wide instructions has a name the linker could merge with another file's.
// For the same reason nothing of the standard library is called. Floats and Integers (unsigned, 32 bits) are
// types with the operators of C++ lane by lane, comparisons and ?: among them: numbers here, GCC's vectors in
// the wide sets. V offers besides:
// - set, splat: a float or an integer in every lane; lanes: 0, 1, 2, ...
// - bits, floats: the bits of floats and back; converted: the values of integers as floats
// - sqrt, fma(a, b, c) = a * b + c: correctly rounded, as the operators are
// - smaller(a, b) = a < b ? a : b, larger(a, b) = a > b ? a : b: b when either is NaN
// - largest: of all lanes, none of them NaN
// - third: x / 3 for x below 2^15
// - lookup8: entries of a table of 16, of which the first 8 are used, by an index modulo 8
// - load, store: arrays of float, bf16 and fp16, Whole vectors or First lanes (extent.h); a store rounds to
//   fp16 to nearest, and for bf16 takes the upper half of the bits
// - stream: stores a whole vector of 16-bit values past the caches, aligned to its bytes; drain: ends that
// - nearest_fp16: rounded to fp16, still as floats
// - load_codes, store_codes: bytes as integers; load_signed_codes extends their highest bit; four vectors are
//   stored at once, with the signs of floats in the highest bits where they are given
// - Divisor: what set_divisor makes of a number for div(a, divisor)
// - SquareSums: norm_lanes fp64 sums; add(group, x) adds the squares of elements group * width, ...; lane(i)
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cpu_adam/extent.h"
#include "cpu_adam/kernel_table.h"

namespace headrace {
namespace {

struct Scalar {
  static constexpr int width = 1;
  using Floats = float;
  using Integers = std::uint32_t;
  using Divisor = float;

  static Floats set(float x) { return x; }
  static Divisor set_divisor(float x) { return x; }
  static Integers splat(std::uint32_t x) { return x; }
  static Integers lanes() { return 0; }
  static Integers bits(Floats x) { return std::bit_cast<std::uint32_t>(x); }
  static Floats floats(Integers x) { return std::bit_cast<float>(x); }
  static Floats converted(Integers x) { return static_cast<float>(x); }

  static Floats load(const float* p, Whole) { return *p; }
  static Floats load(const bf16* p, Whole) { return to_float(*p); }
  static Floats load(const fp16* p, Whole) { return to_float(*p); }
  static void store(float* p, Floats x, Whole) { *p = x; }
  static void store(bf16* p, Floats x, Whole) { p->bits = static_cast<std::uint16_t>(bits(x) >> 16); }
  static void store(fp16* p, Floats x, Whole) { *p = to_fp16(x); }

  // A vector of one lane is never partial.
  template <class T>
  static Floats load(const T* p, First) {
    return load(p, Whole{});
  }
  template <class T>
  static void store(T* p, Floats x, First) {
    store(p, x, Whole{});
  }
  template <class T>
  static void stream(T* p, Floats x) {
    store(p, x, Whole{});
  }
  static void drain() {}
  static Floats nearest_fp16(Floats x) { return to_float(to_fp16(x)); }
  static Integers load_codes(const std::uint8_t* p) { return *p; }
  static Integers load_signed_codes(const std::uint8_t* p) {
    return static_cast<Integers>(static_cast<std::int8_t>(*p));
  }
  static void store_codes(std::uint8_t* p, Integers x) { *p = static_cast<std::uint8_t>(x); }
  static void store_codes(std::uint8_t* p, const Integers (&x)[4]) {
    for (int i = 0; i < 4; ++i) store_codes(p + i, x[i]);
  }
  static void store_codes(std::uint8_t* p, const Integers (&x)[4], const Floats (&signs)[4]) {
    for (int i = 0; i < 4; ++i) store_codes(p + i, x[i] | (bits(signs[i]) >> 24 & 0x80u));
  }

  static Floats div(Floats a, Divisor b) { return a / b; }
  static Floats sqrt(Floats a) { return std::sqrt(a); }
  static Floats fma(Floats a, Floats b, Floats c) { return std::fma(a, b, c); }
  static Floats smaller(Floats a, Floats b) { return a < b ? a : b; }
  static Floats larger(Floats a, Floats b) { return a > b ? a : b; }
  static float largest(Floats a) { return a; }
  static Integers third(Integers x) { return (x & 0xffffu) * 21846u >> 16; }
  static float lookup8(const float* table, Integers index) { return table[index % 8]; }
  static Integers lookup8(const std::uint32_t* table, Integers index) { return table[index % 8]; }

  struct SquareSums {
    double lanes[norm_lanes] = {};
    void add(int group, Floats x) { lanes[group] += static_cast<double>(x) * static_cast<double>(x); }
    double lane(int i) const { return lanes[i]; }
  };
};

}  // namespace
}  // namespace headrace
