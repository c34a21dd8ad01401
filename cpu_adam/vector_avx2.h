// Vectors of 8 lanes with AVX2, FMA and F16C (vector_scalar.h says what a vector type offers). To be included
// after every header that is not for these instructions alone: what follows the pragma is compiled with them.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu_adam/extent.h"
#include "cpu_adam/kernel_table.h"

#pragma GCC target("avx2,fma,f16c")

#include "cpu_adam/division_by_constant.h"

namespace headrace {
namespace {

struct Avx2 {
  static constexpr int width = 8;
  using Floats = __m256;
  typedef std::uint32_t Integers __attribute__((vector_size(32), may_alias));
  using Divisor = ConstantDivisor<Avx2>;

  static Floats set(float x) { return _mm256_set1_ps(x); }
  static Divisor set_divisor(float x) { return Divisor::of(x); }
  static Integers splat(std::uint32_t x) { return Integers(_mm256_set1_epi32(static_cast<int>(x))); }
  static Integers lanes() { return Integers{0, 1, 2, 3, 4, 5, 6, 7}; }
  static Integers bits(Floats x) { return Integers(x); }
  static Floats floats(Integers x) { return Floats(x); }
  static Floats converted(Integers x) { return _mm256_cvtepi32_ps(__m256i(x)); }

  // All ones in the first n lanes.
  static __m256i mask(First extent) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(extent.n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m128i halves(const void* p, Whole) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static __m128i halves(const void* p, First extent) {
    std::uint16_t copy[width] = {};
    for (std::uint64_t i = 0; i < extent.n; ++i) copy[i] = static_cast<const std::uint16_t*>(p)[i];
    return halves(copy, Whole{});
  }
  static void store_halves(void* p, __m128i x, Whole) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
  static void store_halves(void* p, __m128i x, First extent) {
    std::uint16_t copy[width];
    store_halves(copy, x, Whole{});
    for (std::uint64_t i = 0; i < extent.n; ++i) static_cast<std::uint16_t*>(p)[i] = copy[i];
  }
  // The lower halves of 8 integers below 2^16.
  static __m128i packed(__m256i x) {
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  }
  static __m128i narrowed(const bf16*, Floats x) {
    return packed(_mm256_srli_epi32(_mm256_castps_si256(x), 16));
  }
  static __m128i narrowed(const fp16*, Floats x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  static Floats load(const float* p, Whole) { return _mm256_loadu_ps(p); }
  static Floats load(const float* p, First extent) { return _mm256_maskload_ps(p, mask(extent)); }
  template <class Extent>
  static Floats load(const bf16* p, Extent extent) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves(p, extent)), 16));
  }
  template <class Extent>
  static Floats load(const fp16* p, Extent extent) {
    return _mm256_cvtph_ps(halves(p, extent));
  }
  static void store(float* p, Floats x, Whole) { _mm256_storeu_ps(p, x); }
  static void store(float* p, Floats x, First extent) { _mm256_maskstore_ps(p, mask(extent), x); }
  template <class T, class Extent>
  static void store(T* p, Floats x, Extent extent) {
    store_halves(p, narrowed(p, x), extent);
  }
  template <class T>
  static void stream(T* p, Floats x) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(p), narrowed(p, x));
  }
  static void drain() { _mm_sfence(); }
  static Floats nearest_fp16(Floats x) {
    return _mm256_cvtph_ps(narrowed(static_cast<const fp16*>(nullptr), x));
  }
  static Integers load_codes(const std::uint8_t* p) {
    return Integers(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static Integers load_signed_codes(const std::uint8_t* p) {
    return Integers(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static void store_codes(std::uint8_t* p, Integers x) {
    const __m128i halves = packed(__m256i(x));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(halves, halves));
  }

  static void store_codes(std::uint8_t* p, const Integers (&x)[4]) { store_packed(p, packed(x)); }
  static void store_codes(std::uint8_t* p, const Integers (&x)[4], const Floats (&signs)[4]) {
    // Saturation keeps the sign.
    const __m256i low = _mm256_packs_epi32(__m256i(signs[0]), __m256i(signs[1]));
    const __m256i high = _mm256_packs_epi32(__m256i(signs[2]), __m256i(signs[3]));
    const __m256i negative = _mm256_and_si256(_mm256_packs_epi16(low, high), _mm256_set1_epi8(-128));
    store_packed(p, _mm256_or_si256(packed(x), negative));
  }
  // Four vectors of bytes as packs leave them: each half of a vector on its own.
  static __m256i packed(const Integers (&x)[4]) {
    return _mm256_packus_epi16(_mm256_packus_epi32(__m256i(x[0]), __m256i(x[1])),
                               _mm256_packus_epi32(__m256i(x[2]), __m256i(x[3])));
  }
  static void store_packed(std::uint8_t* p, __m256i x) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(x, order));
  }

  static Floats div(Floats a, const Divisor& b) { return quotient<Avx2>(a, b); }
  static Floats sqrt(Floats a) { return _mm256_sqrt_ps(a); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  static Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static float largest(Floats a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  static Integers third(Integers x) {
    return Integers(_mm256_mulhi_epu16(__m256i(x), _mm256_set1_epi32(21846)));
  }
  static Floats lookup8(const float* table, Integers index) {
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), __m256i(index));
  }
  static Integers lookup8(const std::uint32_t* table, Integers index) {
    const __m256i entries = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(table));
    return Integers(_mm256_permutevar8x32_epi32(entries, __m256i(index)));
  }

  static Floats zero_or_infinite_else(Floats a, Floats q) {
    return _mm256_blendv_ps(q, a, _mm256_cmp_ps(_mm256_add_ps(a, a), a, _CMP_EQ_OQ));
  }

  struct SquareSums {
    __m256d sums[norm_lanes / 4] = {};
    void add(int group, Floats x) {
      const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
      const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
      sums[2 * group] = _mm256_fmadd_pd(low, low, sums[2 * group]);
      sums[2 * group + 1] = _mm256_fmadd_pd(high, high, sums[2 * group + 1]);
    }
    double lane(int i) const { return sums[i / 4][i % 4]; }
  };
};

}  // namespace
}  // namespace headrace
