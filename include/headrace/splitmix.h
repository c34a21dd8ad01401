// A 64-bit mixing function: the source of every counter-based random number, and a step of the state hash.
#pragma once

#include <cstdint>

namespace headrace {

constexpr std::uint64_t golden_gamma = 0x9E3779B97F4A7C15ull;
// The finaliser of SplitMix64 after one increment.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += golden_gamma;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace headrace
