#include "headrace/state_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace headrace {
namespace {

std::uint64_t hash_scalar(std::uint64_t key, std::uint64_t first, std::span<const float> values) {
  std::uint64_t sum = 0;
  std::uint64_t position = key + first;
  for (const float value : values)
    sum += splitmix64(splitmix64(position++) ^ std::bit_cast<std::uint32_t>(value));
  return sum;
}

using U64x8 = std::uint64_t __attribute__((vector_size(64)));
using U32x8 = std::uint32_t __attribute__((vector_size(32)));

__attribute__((target("avx512f,avx512dq"), always_inline)) inline void splitmix64_avx512(U64x8& x) {
  x += golden_gamma;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
}

// Two vectors a turn: the multiplications have a long latency and no dependence on one another.
__attribute__((target("avx512f,avx512dq"))) std::uint64_t hash_avx512(std::uint64_t key, std::uint64_t first,
                                                                      std::span<const float> values) {
  constexpr std::size_t lanes = 8;
  constexpr U64x8 ascending = {0, 1, 2, 3, 4, 5, 6, 7};
  U64x8 sum_a = {}, sum_b = {};
  std::size_t j = 0;
  for (; j + 2 * lanes <= values.size(); j += 2 * lanes) {
    U32x8 bits_a, bits_b;
    std::memcpy(&bits_a, values.data() + j, sizeof(bits_a));
    std::memcpy(&bits_b, values.data() + j + lanes, sizeof(bits_b));
    U64x8 a = ascending + (key + first + j), b = a + lanes;
    splitmix64_avx512(a);
    splitmix64_avx512(b);
    a ^= __builtin_convertvector(bits_a, U64x8);
    b ^= __builtin_convertvector(bits_b, U64x8);
    splitmix64_avx512(a);
    splitmix64_avx512(b);
    sum_a += a;
    sum_b += b;
  }
  std::uint64_t sum = hash_scalar(key, first + j, values.subspan(j));
  for (std::size_t lane = 0; lane < lanes; ++lane) sum += sum_a[lane] + sum_b[lane];
  return sum;
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) {
  return XXH64(bytes.data(), bytes.size(), 0);
}

std::uint64_t state_key(std::string_view parameter, StateKind kind) {
  return splitmix64(hash_bytes(parameter) ^ static_cast<std::uint64_t>(kind));
}

std::uint64_t hash_values(std::uint64_t key, std::uint64_t first, std::span<const float> values) {
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  return wide ? hash_avx512(key, first, values) : hash_scalar(key, first, values);
}

std::uint64_t hash_states(std::string_view parameter, std::uint64_t first, const StateFormat& format,
                          const StateArrays& arrays, std::uint64_t at, std::uint64_t numel) {
  constexpr std::uint64_t piece_numel = 64 * quantised_block_numel;  // stays in the first cache
  float values[piece_numel];
  std::uint64_t sum = 0;
  for (std::uint64_t done = 0; done < numel; done += piece_numel) {
    const std::uint64_t piece = std::min(piece_numel, numel - done);
    const auto add = [&](StateKind kind) {
      sum += hash_values(state_key(parameter, kind), first + done, {values, piece});
    };
    if (format.master != MasterDType::none) {
      read_master(format.master, arrays.master, at + done, piece, values);
      add(StateKind::master);
    }
    for (int m = 0; m < moment_count(format); ++m) {
      read_moment(format, m, arrays.moments[static_cast<std::size_t>(m)], at + done, piece, values);
      add(static_cast<StateKind>(m + 1));
    }
  }
  return sum;
}

std::uint64_t finish_state_hash(std::uint64_t sum, std::uint64_t step, std::uint64_t rng_state,
                                double loss_scale, std::uint64_t data_position) {
  std::uint64_t hash = sum;
  for (const std::uint64_t x : {step, rng_state, std::bit_cast<std::uint64_t>(loss_scale), data_position})
    hash = splitmix64(hash ^ x);
  return hash;
}

}  // namespace headrace
