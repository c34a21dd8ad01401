// Vectors of 16 lanes with AVX-512 F, BW, DQ and VL. Everything below the pragma that is not always inlined
// is in the unnamed namespace (kernel_body.h says why); every header is included above it.
#include "cpu_adam/kernel_table.h"

#if defined(__x86_64__)
// GCC 12 warns inside its own intrinsics (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "headrace/kernels.h"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")

#include "cpu_adam/division_by_constant.h"
#include "cpu_adam/kernel_body.h"

namespace headrace {
namespace {

struct Avx512 {
  static constexpr int width = 16;
  using Floats = __m512;
  using Integers = __m512i;
  using Divisor = ConstantDivisor<Avx512>;

  static Floats set(float x) { return _mm512_set1_ps(x); }
  static Divisor set_divisor(float x) { return Divisor::of(x); }

  static __mmask16 mask(First extent) { return static_cast<__mmask16>((1u << extent.n) - 1u); }
  static Floats widen(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static __m256i narrow(Floats x) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16));
  }

  static Floats load(const float* p, Whole) { return _mm512_loadu_ps(p); }
  static Floats load(const float* p, First extent) { return _mm512_maskz_loadu_ps(mask(extent), p); }
  static Floats load(const bf16* p, Whole) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Floats load(const bf16* p, First extent) { return widen(_mm256_maskz_loadu_epi16(mask(extent), p)); }
  static void store(float* p, Floats x, Whole) { _mm512_storeu_ps(p, x); }
  static void store(float* p, Floats x, First extent) { _mm512_mask_storeu_ps(p, mask(extent), x); }
  static void store(bf16* p, Floats x, Whole) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x));
  }
  static void store(bf16* p, Floats x, First extent) { _mm256_mask_storeu_epi16(p, mask(extent), narrow(x)); }

  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static Floats div(Floats a, const Divisor& b) { return quotient<Avx512>(a, b); }
  static Floats sqrt(Floats a) { return _mm512_sqrt_ps(a); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

  static Floats negative(Floats a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
  static Floats zero_or_infinite_else(Floats a, Floats q) {
    constexpr int zero = 0x02 | 0x04, infinite = 0x08 | 0x10;
    return _mm512_mask_mov_ps(q, _mm512_fpclass_ps_mask(a, zero | infinite), a);
  }

  // to_bf16 of dtype.h on integer lanes; VCVTNEPS2BF16 would flush denormals.
  template <class T>
  static Floats rounded(Floats x) {
    if constexpr (!std::is_same_v<T, bf16>) return x;
    const Integers bits = _mm512_castps_si512(x);
    const Integers odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const Integers nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const Integers either = _mm512_mask_or_epi32(nearest, nan, bits, _mm512_set1_epi32(0x00400000));
    return _mm512_castsi512_ps(_mm512_and_si512(either, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
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

const KernelTable* const avx512_kernels = &table_of<Avx512>;

}  // namespace headrace

#else

namespace headrace {
const KernelTable* const avx512_kernels = nullptr;
}

#endif
