// Vectors of 8 lanes with AVX2 and FMA. Everything below the pragma that is not always inlined is in the
// unnamed namespace (kernel_body.h says why); every header is included above it.
#include "cpu_adam/kernel_table.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "headrace/kernels.h"

#pragma GCC target("avx2,fma")

#include "cpu_adam/division_by_constant.h"
#include "cpu_adam/kernel_body.h"

namespace headrace {
namespace {

struct Avx2 {
  static constexpr int width = 8;
  using Floats = __m256;
  using Integers = __m256i;
  using Divisor = ConstantDivisor<Avx2>;

  static Floats set(float x) { return _mm256_set1_ps(x); }
  static Divisor set_divisor(float x) { return Divisor::of(x); }

  // All ones in the first n lanes.
  static Integers mask(First extent) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(extent.n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Floats widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static __m128i narrow(Floats x) {
    const Integers upper = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }

  static Floats load(const float* p, Whole) { return _mm256_loadu_ps(p); }
  static Floats load(const float* p, First extent) { return _mm256_maskload_ps(p, mask(extent)); }
  static Floats load(const bf16* p, Whole) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Floats load(const bf16* p, First extent) {
    bf16 copy[width] = {};
    for (std::uint64_t i = 0; i < extent.n; ++i) copy[i] = p[i];
    return load(copy, Whole{});
  }
  static void store(float* p, Floats x, Whole) { _mm256_storeu_ps(p, x); }
  static void store(float* p, Floats x, First extent) { _mm256_maskstore_ps(p, mask(extent), x); }
  static void store(bf16* p, Floats x, Whole) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x)); }
  static void store(bf16* p, Floats x, First extent) {
    bf16 copy[width];
    store(copy, x, Whole{});
    for (std::uint64_t i = 0; i < extent.n; ++i) p[i] = copy[i];
  }

  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  static Floats div(Floats a, const Divisor& b) { return quotient<Avx2>(a, b); }
  static Floats sqrt(Floats a) { return _mm256_sqrt_ps(a); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

  static Floats negative(Floats a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  static Floats zero_or_infinite_else(Floats a, Floats q) {
    return _mm256_blendv_ps(q, a, _mm256_cmp_ps(_mm256_add_ps(a, a), a, _CMP_EQ_OQ));
  }

  // to_bf16 of dtype.h on integer lanes.
  template <class T>
  static Floats rounded(Floats x) {
    if constexpr (!std::is_same_v<T, bf16>) return x;
    const Integers bits = _mm256_castps_si256(x);
    const Integers odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const Integers nearest = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const Integers quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const Integers nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const Integers either = _mm256_blendv_epi8(nearest, quiet, nan);
    return _mm256_castsi256_ps(_mm256_and_si256(either, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
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

const KernelTable* const avx2_kernels = &table_of<Avx2>;

}  // namespace headrace

#else

namespace headrace {
const KernelTable* const avx2_kernels = nullptr;
}

#endif
