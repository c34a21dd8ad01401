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

}  // namespace
}  // namespace headrace::aio
