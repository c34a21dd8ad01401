// The hash that proves two runs equal (DESIGN section 9), and the counter-based numbers that initial values
// come from.
//
// The hash is the sum modulo 2^64 of one 64-bit value for each element of master and moments, as fp32 values
// whatever type they are kept in, mixed with step, RNG, loss scale and data position.
// tests/python/read_store.py computes the same independently.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/optimizer_state.h"
#include "headrace/splitmix.h"

namespace headrace {

// XXH64 with seed 0.
std::uint64_t hash_bytes(std::string_view bytes);

// Moments in the order of moment_of.
enum class StateKind : std::uint64_t { master = 0, moment_0 = 1, moment_1 = 2, moment_2 = 3 };

// Key of a parameter's elements: splitmix64(XXH64(name, seed 0) ^ kind). Mixed, so that no element of one
// kind counts as its neighbour of another.
std::uint64_t state_key(std::string_view parameter, StateKind kind);
// Sum modulo 2^64 over values[j] of splitmix64(splitmix64(key + index) ^ bits(values[j])), index = first + j.
// Sums of disjoint ranges add up, in any order.
std::uint64_t hash_values(std::uint64_t key, std::uint64_t first, std::span<const float> values);
// That sum over master and moments of one parameter's elements [first, first + numel), which lie in the
// arrays from element `at` on; `at` lies on a quantisation block where moments are int8.
std::uint64_t hash_states(std::string_view parameter, std::uint64_t first, const StateFormat& format,
                          const StateArrays& arrays, std::uint64_t at, std::uint64_t numel);
// h = sum; then h = splitmix64(h ^ x) for x = step, rng_state, bits of the double loss_scale, data_position.
std::uint64_t finish_state_hash(std::uint64_t sum, std::uint64_t step, std::uint64_t rng_state,
                                double loss_scale, std::uint64_t data_position);

}  // namespace headrace
