#include "src/bench/drive_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace headrace {
namespace {

constexpr Bytes sector = DrivePattern::sector_bytes, tile = DrivePattern::tile_bytes;
constexpr Generations third = {.oldest = 3, .newest = 3};

std::vector<std::byte> block(const DrivePattern& pattern, Bytes bytes, std::uint64_t offset,
                             std::uint32_t generation = 3) {
  std::vector<std::byte> memory(bytes);
  pattern.fill_noise(memory, offset);
  pattern.stamp(memory, offset, generation);
  return memory;
}

TEST(DrivePattern, a_block_is_right_at_its_place_whatever_its_size) {
  const DrivePattern pattern(1);
  for (const std::uint64_t offset :
       {Bytes{0}, sector, tile - sector, tile, 5 * tile + 3 * sector, Bytes{1} << 40})
    for (const Bytes bytes : {sector, 3 * sector, tile, tile + sector, 3 * tile}) {
      EXPECT_FALSE(pattern.wrong_stamp(block(pattern, bytes, offset), offset, third));
      EXPECT_FALSE(pattern.wrong_byte(block(pattern, bytes, offset), offset, third));
    }
}

// So blocks of every size can be read where others were written.
TEST(DrivePattern, a_part_of_a_block_is_the_block_of_that_part) {
  const DrivePattern pattern(1);
  const auto whole = block(pattern, 3 * tile, 7 * sector);
  for (const Bytes from : {sector, tile - sector, 2 * tile}) {
    const std::vector<std::byte> part(whole.begin() + static_cast<std::ptrdiff_t>(from),
                                      whole.begin() + static_cast<std::ptrdiff_t>(from + 5 * sector));
    EXPECT_EQ(part, block(pattern, 5 * sector, 7 * sector + from));
  }
}

TEST(DrivePattern, any_changed_byte_is_found_at_its_offset) {
  const DrivePattern pattern(9);
  const auto good = block(pattern, 2 * sector, 3 * sector);
  for (Bytes at = 0; at < good.size(); at += at < 40 ? 1 : 37) {
    auto bad = good;
    bad[at] ^= std::byte{0x10};
    const auto found = pattern.wrong_byte(bad, 3 * sector, {.oldest = 0, .newest = ~0u});
    ASSERT_TRUE(found) << at;
    const bool in_stamp = at % sector < 16;
    EXPECT_EQ(*found, in_stamp ? at / sector * sector : at);
    EXPECT_EQ(pattern.wrong_stamp(bad, 3 * sector, {.oldest = 0, .newest = ~0u}).has_value(), in_stamp);
  }
}

TEST(DrivePattern, data_of_another_place_another_file_or_none_has_wrong_stamps) {
  const DrivePattern pattern(1), other(2);
  const Generations any = {.oldest = 0, .newest = ~0u};
  EXPECT_TRUE(pattern.wrong_stamp(block(pattern, sector, 0), sector, any));
  EXPECT_TRUE(pattern.wrong_stamp(block(pattern, sector, tile), 0, any));  // the same noise
  EXPECT_TRUE(pattern.wrong_stamp(block(other, sector, 0), 0, any));
  EXPECT_TRUE(pattern.wrong_stamp(std::vector<std::byte>(sector), 0, any));
  auto second = block(pattern, 4 * sector, 0);
  pattern.stamp(std::span(second).subspan(2 * sector, sector), 3 * sector, 3);  // two sectors changed places
  EXPECT_EQ(pattern.wrong_stamp(second, 0, any), 2 * sector);
}

// Otherwise a write that never reached the drive would not be noticed: what was there before was right too.
TEST(DrivePattern, a_write_that_was_lost_is_told_from_the_one_that_was_made) {
  const DrivePattern pattern(1);
  const auto before = block(pattern, 2 * sector, 0, 2);
  EXPECT_EQ(pattern.wrong_stamp(before, 0, third), 0u);
  EXPECT_FALSE(pattern.wrong_stamp(before, 0, {.oldest = 1, .newest = 3}));
  auto torn = block(pattern, 2 * sector, 0, 3);
  pattern.stamp(std::span(torn).subspan(sector), sector, 2);
  EXPECT_EQ(pattern.wrong_byte(torn, 0, third), sector);
}

TEST(DrivePattern, what_is_cleared_before_a_read_is_wrong_in_every_sector) {
  const DrivePattern pattern(1);
  auto memory = block(pattern, 3 * sector, 0);
  DrivePattern::clear_stamps(memory);
  for (Bytes at = 0; at < memory.size(); at += sector)
    EXPECT_TRUE(pattern.wrong_stamp(std::span(memory).subspan(at, sector), at, {.oldest = 0, .newest = ~0u}));
}

TEST(DrivePattern, noise_does_not_repeat_within_a_tile) {
  const auto memory = block(DrivePattern(1), tile, 0);
  std::vector<std::uint64_t> words(tile / sizeof(std::uint64_t));
  std::memcpy(words.data(), memory.data(), tile);
  std::sort(words.begin(), words.end());
  EXPECT_EQ(std::adjacent_find(words.begin(), words.end()), words.end());
}

}  // namespace
}  // namespace headrace
