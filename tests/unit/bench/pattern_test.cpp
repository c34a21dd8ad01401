#include "src/bench/pattern.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

std::vector<std::byte> pattern(Bytes bytes, std::uint64_t seed, Bytes position) {
  std::vector<std::byte> memory(bytes);
  fill_pattern(memory, seed, position);
  return memory;
}

TEST(Pattern, a_part_is_the_same_wherever_it_is_cut_from_the_whole) {
  const auto whole = pattern(3000, 5, 0);
  for (const Bytes position : {0, 1, 7, 8, 511, 512, 513, 1999})
    for (const Bytes bytes : {0, 1, 7, 8, 9, 600, 1001}) {
      const auto part = pattern(bytes, 5, position);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(position)))
          << bytes << " bytes at " << position;
      EXPECT_FALSE(pattern_mismatch(part, 5, position));
    }
}

TEST(Pattern, a_changed_byte_is_found_at_its_offset) {
  for (const Bytes offset : {0, 5, 511, 512, 700, 1233}) {
    auto memory = pattern(1234, 1, 3);
    memory[offset] ^= std::byte{1};
    EXPECT_EQ(pattern_mismatch(memory, 1, 3), offset);
  }
}

TEST(Pattern, data_of_another_place_or_another_rank_or_none_is_told_apart) {
  const auto memory = pattern(64, 1, 0);
  EXPECT_TRUE(pattern_mismatch(memory, 2, 0));
  EXPECT_TRUE(pattern_mismatch(memory, 1, 8));
  EXPECT_TRUE(pattern_mismatch(memory, 1, 1));
  EXPECT_TRUE(pattern_mismatch(std::vector<std::byte>(64), 1, 0));
}

TEST(Summand, is_a_small_whole_number_that_depends_on_rank_and_place) {
  int same_rank = 0, same_place = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const float value = summand(3, i);
    EXPECT_EQ(value, static_cast<float>(static_cast<int>(value)));
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 1024);
    same_rank += value == summand(3, i + 1) ? 1 : 0;
    same_place += value == summand(4, i) ? 1 : 0;
  }
  EXPECT_LT(same_rank, 10);
  EXPECT_LT(same_place, 10);
}

}  // namespace
}  // namespace headrace
