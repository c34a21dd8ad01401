// Vectors of 16 lanes with AVX-512 F, BW, DQ and VL (vector_scalar.h says what a vector type offers). To be
// included after every header that is not for these instructions alone: what follows the pragma is compiled
// with them.
#pragma once

// GCC 12 warns inside its own intrinsics (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "cpu_adam/extent.h"
#include "cpu_adam/kernel_table.h"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

#include "cpu_adam/division_by_constant.h"

namespace headrace {
namespace {

struct Avx512 {
  static constexpr int width = 16;
  using Floats = __m512;
  typedef std::uint32_t Integers __attribute__((vector_size(64), may_alias));
  using Divisor = ConstantDivisor<Avx512>;

  static Floats set(float x) { return _mm512_set1_ps(x); }
  static Divisor set_divisor(float x) { return Divisor::of(x); }
  static Integers splat(std::uint32_t x) { return Integers(_mm512_set1_epi32(static_cast<int>(x))); }
  static Integers lanes() { return Integers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
  static Integers bits(Floats x) { return Integers(x); }
  static Floats floats(Integers x) { return Floats(x); }
  static Floats converted(Integers x) { return _mm512_cvtepi32_ps(__m512i(x)); }

  static __mmask16 mask(First extent) { return static_cast<__mmask16>((1u << extent.n) - 1u); }
  static __m256i halves(const void* p, Whole) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static __m256i halves(const void* p, First extent) { return _mm256_maskz_loadu_epi16(mask(extent), p); }
  static void store_halves(void* p, __m256i x, Whole) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  static void store_halves(void* p, __m256i x, First extent) { _mm256_mask_storeu_epi16(p, mask(extent), x); }
  // By permutations of 16-bit lanes: a shift would take the port that divides.
  static Floats widened(__m256i upper_halves) {
    const __m512i place = __m512i(lanes() << 16);  // lane 2i + 1 takes lane i
    return Floats(_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, place, _mm512_castsi256_si512(upper_halves)));
  }
  static __m256i narrowed(const bf16*, Floats x) {
    const __m512i odd = __m512i(lanes() * 0x00040004u + 0x00030001u);  // 1, 3, 5, ...
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, _mm512_castps_si512(x)));
  }
  static __m256i narrowed(const fp16*, Floats x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  static Floats load(const float* p, Whole) { return _mm512_loadu_ps(p); }
  static Floats load(const float* p, First extent) { return _mm512_maskz_loadu_ps(mask(extent), p); }
  template <class Extent>
  static Floats load(const bf16* p, Extent extent) {
    return widened(halves(p, extent));
  }
  template <class Extent>
  static Floats load(const fp16* p, Extent extent) {
    return _mm512_cvtph_ps(halves(p, extent));
  }
  static void store(float* p, Floats x, Whole) { _mm512_storeu_ps(p, x); }
  static void store(float* p, Floats x, First extent) { _mm512_mask_storeu_ps(p, mask(extent), x); }
  template <class T, class Extent>
  static void store(T* p, Floats x, Extent extent) {
    store_halves(p, narrowed(p, x), extent);
  }
  template <class T>
  static void stream(T* p, Floats x) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), narrowed(p, x));
  }
  static void drain() { _mm_sfence(); }
  static Floats nearest_fp16(Floats x) {
    return _mm512_cvtph_ps(narrowed(static_cast<const fp16*>(nullptr), x));
  }
  static Integers load_codes(const std::uint8_t* p) {
    return Integers(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static Integers load_signed_codes(const std::uint8_t* p) {
    return Integers(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void store_codes(std::uint8_t* p, Integers x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(__m512i(x)));
  }

  // In packs: a conversion of each vector to bytes takes the port of permutations twice.
  static void store_codes(std::uint8_t* p, const Integers (&x)[4]) { store_packed(p, packed(x)); }
  static void store_codes(std::uint8_t* p, const Integers (&x)[4], const Floats (&signs)[4]) {
    // Saturation keeps the sign.
    const __m512i low = _mm512_packs_epi32(__m512i(signs[0]), __m512i(signs[1]));
    const __m512i high = _mm512_packs_epi32(__m512i(signs[2]), __m512i(signs[3]));
    const __m512i negative = _mm512_and_si512(_mm512_packs_epi16(low, high), _mm512_set1_epi8(-128));
    store_packed(p, _mm512_or_si512(packed(x), negative));
  }
  // Four vectors of bytes as packs leave them: each quarter of a vector on its own.
  static __m512i packed(const Integers (&x)[4]) {
    return _mm512_packus_epi16(_mm512_packus_epi32(__m512i(x[0]), __m512i(x[1])),
                               _mm512_packus_epi32(__m512i(x[2]), __m512i(x[3])));
  }
  static void store_packed(std::uint8_t* p, __m512i x) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, x));
  }

  static Floats div(Floats a, const Divisor& b) { return quotient<Avx512>(a, b); }
  static Floats sqrt(Floats a) { return _mm512_sqrt_ps(a); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static float largest(Floats a) { return _mm512_reduce_max_ps(a); }
  static Integers third(Integers x) {
    return Integers(_mm512_mulhi_epu16(__m512i(x), _mm512_set1_epi32(21846)));
  }
  static Floats lookup8(const float* table, Integers index) {
    return _mm512_permutexvar_ps(__m512i(index), _mm512_loadu_ps(table));
  }
  static Integers lookup8(const std::uint32_t* table, Integers index) {
    return Integers(_mm512_permutexvar_epi32(__m512i(index), _mm512_loadu_si512(table)));
  }

  static Floats zero_or_infinite_else(Floats a, Floats q) {
    constexpr int zero = 0x02 | 0x04, infinite = 0x08 | 0x10;
    return _mm512_mask_mov_ps(q, _mm512_fpclass_ps_mask(a, zero | infinite), a);
  }

  struct SquareSums {
    __m512d sums[norm_lanes / 8] = {};
    void add(int group, Floats x) {
      const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
      const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
      sums[2 * group] = _mm512_fmadd_pd(low, low, sums[2 * group]);
      sums[2 * group + 1] = _mm512_fmadd_pd(high, high, sums[2 * group + 1]);
    }
    double lane(int i) const { return sums[i / 8][i % 8]; }
  };
};

}  // namespace
}  // namespace headrace
