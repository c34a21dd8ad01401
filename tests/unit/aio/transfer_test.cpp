#include "aio/transfer.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>

#include "headrace/errors.h"

namespace headrace::aio {
namespace {

using namespace headrace::literals;

TEST(Transfer, is_cut_into_pieces_of_the_request_size_and_a_rest) {
  Transfer transfer(2_MiB + 4096, 1_MiB, 4096);
  for (const auto& [begin, bytes] : {std::pair{0_MiB, 1_MiB}, {1_MiB, 1_MiB}, {2_MiB, Bytes{4096}}}) {
    const auto piece = transfer.next();
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->begin, begin);
    EXPECT_EQ(piece->bytes, bytes);
  }
  EXPECT_FALSE(transfer.next());
  EXPECT_FALSE(transfer.done());
}

TEST(Transfer, of_zero_bytes_is_done_from_the_start) {
  Transfer transfer(0, 1_MiB, 512);
  EXPECT_TRUE(transfer.done());
  EXPECT_FALSE(transfer.next());
  EXPECT_EQ(transfer.result().bytes, 0u);
  EXPECT_TRUE(transfer.result().ok());
}

TEST(Transfer, pieces_are_aligned_even_when_the_request_size_is_not) {
  Transfer transfer(64_KiB, 10000, 4096);
  EXPECT_EQ(transfer.next()->bytes, 8192u);
  Transfer tiny(64_KiB, 1, 4096);
  EXPECT_EQ(tiny.next()->bytes, 4096u);
}

TEST(Transfer, no_piece_exceeds_what_one_system_call_can_move) {
  constexpr Bytes total = 5_GiB + 4096;
  Transfer transfer(total, 8_GiB, 4096);
  Bytes sum = 0;
  while (const auto piece = transfer.next()) {
    EXPECT_LE(piece->bytes, Transfer::max_piece_bytes);
    EXPECT_EQ(piece->begin, sum);
    sum += piece->bytes;
    transfer.complete(*piece, static_cast<std::int64_t>(piece->bytes));
  }
  EXPECT_EQ(sum, total);
  EXPECT_EQ(transfer.result().bytes, total);
}

TEST(Transfer, short_result_is_resumed_where_it_ended) {
  Transfer transfer(1_MiB, 1_MiB, 1);
  transfer.complete(*transfer.next(), 1000);
  const auto rest = transfer.next();
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->begin, 1000u);
  EXPECT_EQ(rest->bytes, 1_MiB - 1000);
  transfer.complete(*rest, static_cast<std::int64_t>(rest->bytes));
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(transfer.result().bytes, 1_MiB);
}

TEST(Transfer, short_result_of_a_direct_file_is_resumed_at_an_aligned_offset) {
  Transfer transfer(1_MiB, 1_MiB, 4096);
  transfer.complete(*transfer.next(), 5000);
  const auto rest = transfer.next();
  EXPECT_EQ(rest->begin, 4096u);
  EXPECT_EQ(rest->bytes, 1_MiB - 4096);
}

TEST(Transfer, less_than_one_block_is_tried_twice_and_then_is_the_end_of_the_file) {
  Transfer transfer(8192, 1_MiB, 4096);
  transfer.complete(*transfer.next(), 100);
  const auto again = transfer.next();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->begin, 0u);
  transfer.complete(*again, 100);
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(transfer.result().code, EIO);
  EXPECT_EQ(transfer.result().bytes, 100u);
}

TEST(Transfer, zero_bytes_are_the_end_of_the_file) {
  Transfer transfer(8192, 4096, 1);
  transfer.complete(*transfer.next(), 4096);
  transfer.complete(*transfer.next(), 0);
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(transfer.result().code, EIO);
  EXPECT_EQ(transfer.result().bytes, 4096u);
}

TEST(Transfer, eintr_is_retried_without_limit) {
  Transfer transfer(4096, 4096, 4096);
  for (int i = 0; i < 100000; ++i) transfer.complete(*transfer.next(), -EINTR);
  transfer.complete(*transfer.next(), 4096);
  EXPECT_TRUE(transfer.done());
  EXPECT_TRUE(transfer.result().ok());
}

TEST(Transfer, endless_eagain_is_reported_in_the_end) {
  Transfer transfer(4096, 4096, 4096);
  std::uint32_t tries = 0;
  for (; !transfer.done(); ++tries) transfer.complete(*transfer.next(), -EAGAIN);
  EXPECT_EQ(tries, Transfer::max_again + 1);
  EXPECT_EQ(transfer.result().code, EAGAIN);
}

TEST(Transfer, an_error_stops_the_issue_and_waits_for_what_is_in_flight) {
  Transfer transfer(64_KiB, 4096, 4096);
  const auto first = transfer.next(), second = transfer.next();
  transfer.complete(*second, -EIO);
  EXPECT_FALSE(transfer.next());
  EXPECT_FALSE(transfer.done());
  transfer.complete(*first, 4096);
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(transfer.result().code, EIO);
  EXPECT_EQ(transfer.result().bytes, 4096u);
}

TEST(Transfer, of_two_errors_the_one_nearest_to_the_start_is_reported) {
  Transfer transfer(64_KiB, 4096, 4096);
  const auto first = transfer.next(), second = transfer.next();
  transfer.complete(*second, -ENOSPC);
  transfer.complete(*first, -EIO);
  EXPECT_EQ(transfer.result().code, EIO);
  EXPECT_EQ(transfer.result().bytes, 0u);
}

TEST(Transfer, bytes_to_be_resumed_do_not_count_as_good_after_an_error) {
  Transfer transfer(64_KiB, 8192, 4096);
  const auto first = transfer.next(), second = transfer.next();
  transfer.complete(*first, 4096);
  transfer.complete(*second, -EIO);
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(transfer.result().bytes, 4096u);
}

TEST(Transfer, completing_a_piece_twice_is_a_bug) {
  Transfer transfer(4096, 4096, 4096);
  const auto piece = transfer.next();
  transfer.complete(*piece, 4096);
  EXPECT_THROW(transfer.complete(*piece, 4096), std::logic_error);
}

// Oracle: a map of which byte has been transferred.
TEST(Transfer, any_mix_of_short_results_and_retries_transfers_every_byte) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const Bytes alignment = round % 2 == 0 ? 1 : 16;
    const Bytes bytes = (1 + random() % 40) * 16;
    std::vector<char> moved(bytes, 0);
    std::vector<Piece> flying;
    Transfer transfer(bytes, 48, alignment);
    while (!transfer.done()) {
      while (const auto piece = transfer.next()) flying.push_back(*piece);
      ASSERT_FALSE(flying.empty());
      std::swap(flying[random() % flying.size()], flying.back());
      const Piece piece = flying.back();
      flying.pop_back();
      ASSERT_EQ(piece.begin % alignment, 0u);
      std::int64_t result = random() % 5 == 0 ? -EINTR : random() % 5 == 0 ? -EAGAIN : 0;
      if (result == 0) {
        const Bytes least = std::min(alignment, piece.bytes);
        result = static_cast<std::int64_t>(least + random() % (piece.bytes - least + 1));
        std::fill_n(moved.begin() + static_cast<std::ptrdiff_t>(piece.begin), result, 1);
      }
      transfer.complete(piece, result);
    }
    ASSERT_EQ(transfer.result().bytes, bytes);
    ASSERT_TRUE(transfer.result().ok());
    ASSERT_EQ(std::count(moved.begin(), moved.end(), 1), static_cast<std::ptrdiff_t>(bytes));
  }
}

TEST(Transfer, cancelled_without_end_fails_with_that) {
  Transfer transfer(4096, 4096, 512);
  for (std::uint32_t i = 0; i <= Transfer::max_cancelled; ++i) {
    const auto piece = transfer.next();
    ASSERT_TRUE(piece) << i;
    transfer.complete(*piece, -ECANCELED);
  }
  EXPECT_TRUE(transfer.done());
  EXPECT_EQ(transfer.result().code, ECANCELED);
}

TEST(Transfer, tells_what_was_cancelled_from_what_the_kernel_could_not_take_yet) {
  Transfer transfer(4096, 4096, 512);
  for (std::uint32_t i = 0; i < Transfer::max_again; ++i) transfer.complete(*transfer.next(), -EAGAIN);
  for (std::uint32_t i = 0; i < Transfer::max_cancelled; ++i) {
    const auto piece = transfer.next();
    ASSERT_TRUE(piece) << i;
    EXPECT_EQ(piece->again, Transfer::max_again);
    EXPECT_EQ(piece->cancelled, i);
    transfer.complete(*piece, -ECANCELED);
  }
  transfer.complete(*transfer.next(), 4096);
  EXPECT_TRUE(transfer.done());
  EXPECT_TRUE(transfer.result().ok());
}

}  // namespace
}  // namespace headrace::aio
