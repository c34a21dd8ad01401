#include "aio/alignment.h"

#include <gtest/gtest.h>

namespace headrace::aio {
namespace {

constexpr FileAlignment sectors{.memory = 512, .offset = 512}, pages{.memory = 4, .offset = 4096},
    buffered{.memory = 1, .offset = 1};

TEST(Alignment, an_aligned_transfer_has_no_ends) {
  EXPECT_EQ(cut_at_blocks(1024, 2048, 4096, sectors), (AlignedParts{.middle = 2048}));
  EXPECT_EQ(cut_at_blocks(0, 0, 0, sectors), AlignedParts{});
}

TEST(Alignment, only_what_shares_a_block_with_others_is_an_end) {
  EXPECT_EQ(cut_at_blocks(500, 2000, 500, sectors), (AlignedParts{.head = 12, .middle = 1536, .tail = 452}));
  EXPECT_EQ(cut_at_blocks(500, 12, 0, sectors), (AlignedParts{.head = 12}));
  EXPECT_EQ(cut_at_blocks(500, 5, 0, sectors), (AlignedParts{.head = 5}));
  EXPECT_EQ(cut_at_blocks(512, 5, 0, sectors), (AlignedParts{.tail = 5}));
  EXPECT_EQ(cut_at_blocks(500, 13, 0, sectors), (AlignedParts{.head = 12, .tail = 1}));
}

TEST(Alignment, memory_that_is_not_aligned_where_the_blocks_are_is_bounced) {
  EXPECT_EQ(cut_at_blocks(0, 1024, 1, sectors), (AlignedParts{.middle = 1024, .middle_bounced = true}));
  EXPECT_EQ(cut_at_blocks(500, 1036, 500, sectors), (AlignedParts{.head = 12, .middle = 1024}));
  EXPECT_TRUE(cut_at_blocks(500, 1036, 512, sectors).middle_bounced);
  EXPECT_FALSE(cut_at_blocks(0, 8192, 4, pages).middle_bounced);
  EXPECT_FALSE(cut_at_blocks(5, 10, 1, sectors).middle_bounced);  // there is none
}

TEST(Alignment, a_buffered_file_needs_no_cut) {
  EXPECT_EQ(cut_at_blocks(7, 1001, 3, buffered), (AlignedParts{.middle = 1001}));
}

TEST(Alignment, the_parts_are_the_whole_at_every_offset_and_length) {
  for (std::uint64_t offset = 0; offset < 1100; offset += 37)
    for (Bytes bytes = 0; bytes < 2100; bytes += 13) {
      const auto parts = cut_at_blocks(offset, bytes, 512 + offset, sectors);
      ASSERT_EQ(parts.head + parts.middle + parts.tail, bytes);
      ASSERT_LT(parts.head, 512u);
      ASSERT_LT(parts.tail, 512u);
      ASSERT_EQ(parts.middle % 512, 0u);
      ASSERT_FALSE(parts.middle_bounced);
      ASSERT_TRUE(parts.middle == 0 || (offset + parts.head) % 512 == 0);
    }
}

}  // namespace
}  // namespace headrace::aio
