#include "aio/memory_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::aio {
namespace {

class MemoryTableTest : public ::testing::Test {
 protected:
  std::span<std::byte> part(std::size_t begin, std::size_t bytes) {
    return std::span(memory_).subspan(begin, bytes);
  }
  void add(RegionId region, std::span<std::byte> memory) {
    for (const auto& piece : table_.take(memory)) table_.publish(region, piece);
  }
  std::optional<std::uint32_t> find(std::size_t begin, Bytes bytes) const {
    return table_.find(memory_.data() + begin, bytes);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
  MemoryTable table_{4, 100};
};

TEST_F(MemoryTableTest, finds_what_lies_whole_in_a_region) {
  add(1, part(200, 50));
  EXPECT_TRUE(find(200, 50));
  EXPECT_TRUE(find(249, 1));
  EXPECT_FALSE(find(199, 2));
  EXPECT_FALSE(find(249, 2));
  EXPECT_FALSE(find(250, 1));
  EXPECT_FALSE(find(0, 1));
}

TEST_F(MemoryTableTest, a_large_region_takes_several_places_and_nothing_lies_in_two) {
  add(1, part(0, 250));
  EXPECT_NE(find(99, 1), find(100, 1));
  EXPECT_TRUE(find(200, 50));
  EXPECT_FALSE(find(99, 2));
}

TEST_F(MemoryTableTest, what_was_withdrawn_is_found_no_more_and_its_places_serve_again) {
  for (RegionId region = 1; region < 50; ++region) {
    add(region, part(0, 400));
    ASSERT_TRUE(find(350, 50)) << region;
    const auto places = table_.withdraw(region);
    ASSERT_EQ(places.size(), 4u);
    ASSERT_FALSE(find(350, 50));
    for (const std::uint32_t place : places) table_.give_back(place);
  }
}

TEST_F(MemoryTableTest, beyond_its_places_memory_is_not_taken) {
  EXPECT_EQ(table_.take(part(0, 1000)).size(), 4u);
  EXPECT_TRUE(table_.take(part(0, 10)).empty());
}

// Addresses only: nothing is touched.
std::span<std::byte> addresses(std::uintptr_t begin, Bytes bytes) {
  return {reinterpret_cast<std::byte*>(begin), bytes};
}
constexpr Bytes huge = Bytes{2} << 20, gibibyte = Bytes{1} << 30;

TEST(CutRegion, whole_huge_pages_are_one_piece_up_to_the_largest) {
  EXPECT_EQ(cut_region(addresses(10 * huge, 5 * huge), gibibyte).size(), 1u);
  EXPECT_EQ(cut_region(addresses(10 * huge, 2 * gibibyte), gibibyte).size(), 2u);
  EXPECT_TRUE(cut_region({}, gibibyte).empty());
}

TEST(CutRegion, ends_that_are_not_huge_pages_are_pieces_of_their_own_over_the_border) {
  const auto pieces = cut_region(addresses(10 * huge + 4096, 9 * huge), gibibyte);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].data(), addresses(11 * huge, 1).data());
  EXPECT_EQ(pieces[0].size(), 8 * huge);
  EXPECT_EQ(pieces[1].data(), addresses(10 * huge + 4096, 1).data());
  EXPECT_EQ(pieces[1].size(), 3 * huge - 4096);
  EXPECT_EQ(pieces[2].data() + pieces[2].size(), addresses(19 * huge + 4096, 1).data());
  EXPECT_EQ(pieces[2].size(), 2 * huge + 4096);
}

TEST(CutRegion, what_is_hardly_larger_than_a_huge_page_stays_whole) {
  EXPECT_EQ(cut_region(addresses(10 * huge + 4096, 3 * huge), gibibyte).size(), 1u);
}

TEST(MemoryTableOfHugePages, requests_across_the_border_are_found_and_the_middle_is_preferred) {
  MemoryTable table(8, gibibyte);
  const auto region = addresses(10 * huge + 4096, 9 * huge);
  const auto pieces = table.take(region);
  for (const auto& piece : pieces) table.publish(1, piece);
  const auto at = [&](std::uintptr_t begin, Bytes bytes) {
    return table.find(addresses(begin, 1).data(), bytes);
  };
  EXPECT_EQ(at(11 * huge, huge), pieces[0].place);
  EXPECT_EQ(at(18 * huge, huge), pieces[0].place);
  EXPECT_EQ(at(10 * huge + 4096, huge), pieces[1].place);
  EXPECT_EQ(at(18 * huge + 4096, huge), pieces[2].place);
  EXPECT_EQ(at(19 * huge, 4097), std::nullopt);
}

}  // namespace
}  // namespace headrace::aio
