#include "headrace/state_hash.h"

#include <immintrin.h>
#include <xxhash.h>

#include <bit>
#include <cstddef>

namespace headrace {
namespace {

std::uint64_t hash_scalar(std::uint64_t key, std::uint64_t first, std::span<const float> values) {
  std::uint64_t sum = 0;
  std::uint64_t position = key + first;
  for (const float value : values)
    sum += splitmix64(splitmix64(position++) ^ std::bit_cast<std::uint32_t>(value));
  return sum;
}

__attribute__((target("avx512f,avx512dq"))) inline __m512i splitmix64_x8(__m512i x) {
  x = _mm512_add_epi64(x, _mm512_set1_epi64(static_cast<long long>(golden_gamma)));
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)),
                         _mm512_set1_epi64(static_cast<long long>(0xBF58476D1CE4E5B9ull)));
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)),
                         _mm512_set1_epi64(static_cast<long long>(0x94D049BB133111EBull)));
  return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
}

// Two vectors a turn: the multiplications have a long latency and no dependence on one another.
__attribute__((target("avx512f,avx512dq"))) std::uint64_t hash_avx512(std::uint64_t key, std::uint64_t first,
                                                                      std::span<const float> values) {
  constexpr std::size_t lanes = 8;
  const auto position_of = [&](std::size_t j) { return static_cast<long long>(key + first + j); };
  const __m512i ascending = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  __m512i sum_a = _mm512_setzero_si512(), sum_b = sum_a;
  std::size_t j = 0;
  for (; j + 2 * lanes <= values.size(); j += 2 * lanes) {
    const auto* bits = reinterpret_cast<const __m256i*>(values.data() + j);
    const __m512i a = _mm512_cvtepu32_epi64(_mm256_loadu_si256(bits));
    const __m512i b = _mm512_cvtepu32_epi64(_mm256_loadu_si256(bits + 1));
    const __m512i position_a = _mm512_add_epi64(_mm512_set1_epi64(position_of(j)), ascending);
    const __m512i position_b = _mm512_add_epi64(_mm512_set1_epi64(position_of(j + lanes)), ascending);
    sum_a = _mm512_add_epi64(sum_a, splitmix64_x8(_mm512_xor_si512(splitmix64_x8(position_a), a)));
    sum_b = _mm512_add_epi64(sum_b, splitmix64_x8(_mm512_xor_si512(splitmix64_x8(position_b), b)));
  }
  alignas(64) std::uint64_t parts[lanes];
  _mm512_store_si512(parts, _mm512_add_epi64(sum_a, sum_b));
  std::uint64_t sum = hash_scalar(key, first + j, values.subspan(j));
  for (const std::uint64_t part : parts) sum += part;
  return sum;
}

}  // namespace

std::uint64_t state_key(std::string_view parameter, StateKind kind) {
  return XXH64(parameter.data(), parameter.size(), 0) ^ static_cast<std::uint64_t>(kind);
}

std::uint64_t hash_values(std::uint64_t key, std::uint64_t first, std::span<const float> values) {
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  return wide ? hash_avx512(key, first, values) : hash_scalar(key, first, values);
}

std::uint64_t finish_state_hash(std::uint64_t sum, std::uint64_t step, std::uint64_t rng_state,
                                double loss_scale, std::uint64_t data_position) {
  std::uint64_t hash = sum;
  for (const std::uint64_t x : {step, rng_state, std::bit_cast<std::uint64_t>(loss_scale), data_position})
    hash = splitmix64(hash ^ x);
  return hash;
}

}  // namespace headrace
