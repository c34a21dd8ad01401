#include "src/bench/block_order.h"

#include <gtest/gtest.h>

#include <deque>
#include <set>

namespace headrace {
namespace {

using namespace literals;

BlockWork work(NvmeOperation operation, NvmeAccess access, std::uint32_t depth) {
  return {.operation = operation, .access = access, .block_bytes = 64_KiB, .depth = depth};
}

TEST(BlockOrder, sequential_work_goes_on_where_it_starts_and_wraps_round) {
  BlockOrder order(work(NvmeOperation::read, NvmeAccess::sequential, 1), 4 * 64_KiB + 4_KiB, 2 * 64_KiB + 5,
                   0);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 6; ++i) {
    const BlockRequest request = order.next();
    blocks.push_back(request.offset / 64_KiB);
    EXPECT_EQ(request.direction, IoDirection::read);
    order.ended(request);
  }
  EXPECT_EQ(blocks, (std::vector<std::uint64_t>{2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(order.position(), 0u);
}

TEST(BlockOrder, no_block_is_in_flight_twice_and_none_leaves_the_file) {
  for (const NvmeAccess access : {NvmeAccess::sequential, NvmeAccess::random}) {
    constexpr std::uint32_t depth = 7;
    BlockOrder order(work(NvmeOperation::mixed, access, depth), 9 * 64_KiB, 0, 5);
    std::deque<BlockRequest> in_flight;
    for (int i = 0; i < 1000; ++i) {
      if (in_flight.size() == depth + 1) order.ended(in_flight.front()), in_flight.pop_front();
      const BlockRequest next = order.next();
      EXPECT_EQ(next.offset % 64_KiB, 0u);
      EXPECT_LE(next.offset + 64_KiB, 9 * 64_KiB);
      for (const BlockRequest& other : in_flight) EXPECT_NE(next.offset, other.offset);
      in_flight.push_back(next);
    }
  }
}

TEST(BlockOrder, random_work_reaches_every_block_evenly) {
  constexpr int blocks = 50, draws = 50'000;
  BlockOrder order(work(NvmeOperation::write, NvmeAccess::random, 1), blocks * 64_KiB, 0, 3);
  std::vector<int> counts(blocks);
  for (int i = 0; i < draws; ++i) {
    const BlockRequest request = order.next();
    ++counts[request.offset / 64_KiB];
    order.ended(request);
  }
  for (const int count : counts) EXPECT_NEAR(count, draws / blocks, 200);  // more than 6 standard deviations
}

TEST(BlockOrder, a_mixed_order_has_its_share_of_reads_in_any_stretch) {
  for (const double share : {0.01, 0.3, 0.5, 0.75, 0.99}) {
    BlockWork mixed = work(NvmeOperation::mixed, NvmeAccess::sequential, 1);
    mixed.read_share = share;
    BlockOrder order(mixed, 100 * 64_KiB, 0, 0);
    std::vector<int> reads;
    for (int i = 0; i < 1000; ++i) {
      const BlockRequest request = order.next();
      reads.push_back(request.direction == IoDirection::read ? 1 : 0);
      order.ended(request);
    }
    for (std::size_t from = 0; from + 100 <= reads.size(); from += 50) {
      int count = 0;
      for (std::size_t i = from; i < from + 100; ++i) count += reads[i];
      EXPECT_NEAR(count, share * 100, 1.01) << share;
    }
  }
}

TEST(BlockOrder, a_file_without_room_for_what_is_in_flight_is_a_bug_of_the_caller) {
  EXPECT_THROW(BlockOrder(work(NvmeOperation::read, NvmeAccess::random, 4), 4 * 64_KiB, 0, 0),
               std::logic_error);
}

}  // namespace
}  // namespace headrace
