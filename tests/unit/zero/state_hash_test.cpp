// The state hash against known answers and against its definition, one element at a time.
#include "headrace/state_hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace headrace {
namespace {

std::uint64_t hash_by_definition(std::uint64_t key, std::uint64_t first, const std::vector<float>& values) {
  std::uint64_t sum = 0;
  for (std::size_t j = 0; j < values.size(); ++j)
    sum += splitmix64(splitmix64(key + first + j) ^ std::bit_cast<std::uint32_t>(values[j]));
  return sum;
}

std::vector<float> some_values(std::size_t numel) {
  std::vector<float> values(numel);
  for (std::size_t i = 0; i < numel; ++i)
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(splitmix64(i)));  // NaN and denormals too
  return values;
}

TEST(StateHash, splitmix64_gives_the_published_sequence) {
  // Vigna's generator seeded with 1234567.
  std::uint64_t state = 1234567;
  for (const std::uint64_t expected : {6457827717110365317ull, 3203168211198807973ull, 9817491932198370423ull,
                                       4593380528125082431ull, 16408922859458223821ull}) {
    EXPECT_EQ(splitmix64(state), expected);
    state += golden_gamma;
  }
}

TEST(StateHash, the_key_mixes_xxh64_of_the_name_with_the_kind) {
  EXPECT_EQ(hash_bytes(""), 0xEF46DB3751D8E999ull);
  EXPECT_EQ(hash_bytes("a"), 0xD24EC4F1A98C6E5Bull);
  EXPECT_EQ(hash_bytes("abc"), 0x44BC2CF5AD770999ull);
  EXPECT_EQ(state_key("abc", StateKind::master), splitmix64(0x44BC2CF5AD770999ull));
  EXPECT_EQ(state_key("abc", StateKind::moment_0), splitmix64(0x44BC2CF5AD770998ull));
  EXPECT_EQ(state_key("abc", StateKind::moment_1), splitmix64(0x44BC2CF5AD77099Bull));
}

TEST(StateHash, of_states_takes_each_array_by_the_key_of_its_kind) {
  constexpr std::uint64_t numel = 40;
  const std::vector<float> values = some_values(3 * numel);
  std::vector<float> memory = values;
  const StateFormat adam;
  const StateArrays arrays = state_arrays(adam, reinterpret_cast<std::byte*>(memory.data()), numel);
  std::uint64_t sum = 0;
  for (const StateKind kind : {StateKind::master, StateKind::moment_0, StateKind::moment_1}) {
    const auto* const array =
        kind == StateKind::master ? arrays.master : arrays.moments[static_cast<std::size_t>(kind) - 1].values;
    sum += hash_values(state_key("w", kind), 7, {reinterpret_cast<const float*>(array), numel});
  }
  EXPECT_EQ(hash_states("w", 7, adam, arrays, 0, numel), sum);
}

TEST(StateHash, neighbours_that_change_places_between_two_kinds_of_state_count) {
  const std::vector<float> before = some_values(16);
  for (const char* name : {"a", "b", "c", "w", "wte", "h.0.attn.weight"})
    for (const int shift : {-1, 0, 1}) {
      std::vector<float> master = before, moment = before;
      const std::size_t i = 5, j = static_cast<std::size_t>(5 + shift);
      moment[j] = 0.25f;
      const auto hash = [&] {
        return hash_values(state_key(name, StateKind::master), 0, master) +
               hash_values(state_key(name, StateKind::moment_0), 0, moment);
      };
      const std::uint64_t straight = hash();
      std::swap(master[i], moment[j]);
      EXPECT_NE(hash(), straight) << name << ' ' << shift;
    }
}

TEST(StateHash, every_length_and_start_equals_the_definition) {
  const std::uint64_t key = state_key("w", StateKind::moment_0);
  for (std::size_t numel = 0; numel <= 70; ++numel) {
    const std::vector<float> values = some_values(numel);
    for (const std::uint64_t first : {0ull, 1ull, 4096ull, 0x1'0000'0011ull, ~0ull - 20})
      ASSERT_EQ(hash_values(key, first, values), hash_by_definition(key, first, values))
          << numel << " " << first;
  }
  const std::vector<float> many = some_values(100003);
  EXPECT_EQ(hash_values(key, 7, many), hash_by_definition(key, 7, many));
}

TEST(StateHash, sums_of_disjoint_ranges_add_up_wherever_the_cut_is) {
  const std::vector<float> values = some_values(257);
  const std::span<const float> all(values);
  for (std::size_t cut = 0; cut <= values.size(); ++cut)
    ASSERT_EQ(hash_values(9, 100, all.first(cut)) + hash_values(9, 100 + cut, all.subspan(cut)),
              hash_values(9, 100, all));
}

TEST(StateHash, every_bit_of_a_value_its_place_its_kind_and_its_name_count) {
  std::vector<float> values = some_values(40);
  const std::uint64_t key = state_key("w", StateKind::master);
  const std::uint64_t hash = hash_values(key, 0, values);
  for (std::size_t j = 0; j < values.size(); ++j)
    for (int bit = 0; bit < 32; ++bit) {
      std::vector<float> flipped = values;
      flipped[j] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(values[j]) ^ (1u << bit));
      ASSERT_NE(hash_values(key, 0, flipped), hash);
    }
  std::swap(values[3], values[4]);
  EXPECT_NE(hash_values(key, 0, values), hash);
  std::swap(values[3], values[4]);
  EXPECT_NE(hash_values(key, 1, values), hash);
  EXPECT_NE(hash_values(state_key("w", StateKind::moment_0), 0, values), hash);
  EXPECT_NE(hash_values(state_key("v", StateKind::master), 0, values), hash);
}

TEST(StateHash, minus_zero_and_zero_differ) {
  const std::vector<float> zero{0.0f}, minus{-0.0f};
  EXPECT_NE(hash_values(1, 0, zero), hash_values(1, 0, minus));
}

TEST(StateHash, the_finish_mixes_every_part_in_its_order) {
  EXPECT_EQ(finish_state_hash(0, 0, 0, 0.0, 0), splitmix64(splitmix64(splitmix64(splitmix64(0)))));
  EXPECT_EQ(finish_state_hash(5, 1, 2, 1.0, 3),
            splitmix64(splitmix64(splitmix64(splitmix64(5 ^ 1) ^ 2) ^ 0x3FF0000000000000ull) ^ 3));
  EXPECT_NE(finish_state_hash(5, 1, 2, 1.0, 3), finish_state_hash(5, 2, 1, 1.0, 3));
}

}  // namespace
}  // namespace headrace
