#include "src/tune/ceiling.h"

#include <gtest/gtest.h>

#include "src/tune/failures.h"
#include "tests/support/engine_harness.h"

namespace headrace::tune {
namespace {

using headrace::testing::TemporaryFolder;

const SwapPoint small_point = {
    .block_bytes = 384 << 10, .buffers = 4, .queue_depth = 8, .request_bytes = 128 << 10};

SwapPipelineOptions small_pipeline(const std::string& folder) {
  return {.point = small_point, .parameters = 300'000, .folders = {folder + "/store"}};
}

TEST(RawBuffers, are_half_as_many_as_the_points) {
  const auto usual = raw_buffers({.block_bytes = 3 << 20, .buffers = 8}, ~Bytes{0});
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->block_bytes, Bytes{3} << 20);
  EXPECT_EQ(usual->count, 4u);
}

TEST(RawBuffers, keep_within_any_memory_and_hold_two_requests_or_are_none) {
  constexpr Bytes automatic = 0, taken_for_that = 1 << 20;
  for (const Bytes given : {automatic, Bytes{128} << 10, Bytes{4} << 20})
    for (const Bytes block : {48u << 10, 384u << 10, 3u << 20, 96u << 20})
      for (Bytes available = 4096; available < Bytes{1} << 33; available = available * 3 / 2 + 1) {
        const SwapPoint point{.block_bytes = block, .buffers = 8, .request_bytes = given};
        const Bytes request = std::min(block, given == automatic ? taken_for_that : given);
        const auto got = raw_buffers(point, available);
        EXPECT_EQ(got.has_value(), available / 2 >= request);
        if (!got) continue;
        EXPECT_LE(got->bytes(), available);
        EXPECT_GE(got->block_bytes, request);
        EXPECT_GE(got->count, 2u);
      }
}

TEST(RawFile, moves_its_bytes_with_smaller_blocks_too) {
  const TemporaryFolder folder;
  const auto buffers = raw_buffers(small_point, 300 << 10);
  ASSERT_TRUE(buffers);
  EXPECT_EQ(buffers->block_bytes, Bytes{148} << 10);
  RawFile file({folder.path() + "/plain"}, {}, small_point, *buffers, 2 << 20, 10);
  EXPECT_EQ(file.bytes(), (Bytes{2} << 20) / buffers->block_bytes * buffers->block_bytes);
  EXPECT_EQ(file.read(10).bytes, file.bytes());
  EXPECT_EQ(file.write(10).bytes, file.bytes());
}

TEST(PlainSeconds, let_three_rounds_fit_where_there_is_time) {
  for (const double left : {1.0, 2.0, 5.0, 12.0, 100.0})
    for (const double step : {0.01, 0.1, 0.14}) {
      const double plain = plain_seconds(left, step);
      EXPECT_LE(3 * round_seconds(step, plain), left * 1.0001);
      EXPECT_GT(plain, 0.02);
    }
  EXPECT_DOUBLE_EQ(plain_seconds(1000, 0.1), 0.25);  // longer says no more
  EXPECT_DOUBLE_EQ(plain_seconds(0.1, 1), 0.02);
  EXPECT_DOUBLE_EQ(plain_seconds(-1, 1), 0.02);
}

TEST(Ceiling, has_as_many_rounds_as_there_is_time_for) {
  const TemporaryFolder folder;
  SwapPipeline pipeline(small_pipeline(folder.path()));
  for (const int wanted : {1, 2, 5}) {
    int rounds = 1;
    const TuneCeiling ceiling = measure_ceiling(
        pipeline, nullptr, small_point,
        {.compute_seconds = 1e-4, .over = [&] { return rounds++ >= wanted; }, .stop = [] { return false; }});
    EXPECT_EQ(ceiling.rounds, wanted);
    EXPECT_GT(ceiling.share, 0);
    EXPECT_EQ(ceiling.alone_seconds, 0);
  }
}

TEST(Ceiling, with_a_file_has_the_rates_of_plain_transfers) {
  const TemporaryFolder folder;
  SwapPipeline pipeline(small_pipeline(folder.path()));
  RawFile file({folder.path() + "/plain"}, {}, small_point, *raw_buffers(small_point, 1 << 20), 2 << 20, 10);
  const TuneCeiling ceiling = measure_ceiling(pipeline, &file, small_point,
                                              {.compute_seconds = 1e-4,
                                               .plain_seconds = 0.01,
                                               .over = [] { return true; },
                                               .stop = [] { return false; }});
  EXPECT_EQ(ceiling.rounds, 1);
  EXPECT_GT(ceiling.read_bytes_per_second, 0);
  EXPECT_GT(ceiling.write_bytes_per_second, 0);
  const double moved =
      384.0 * 1024 * 10 * (1 / ceiling.read_bytes_per_second + 1 / ceiling.write_bytes_per_second);
  EXPECT_GE(ceiling.alone_seconds, moved);
  EXPECT_DOUBLE_EQ(ceiling.over_alone(), ceiling.alone_seconds / ceiling.step_seconds);
  EXPECT_EQ(measure_ceiling(pipeline, &file, small_point, {.over = {}, .stop = [] { return true; }}).rounds,
            0);
}

// After most of the time has gone into the search, no failure may take its result away.
TEST(Failures, of_the_drive_and_of_memory_are_told_and_others_pass) {
  EXPECT_FALSE(failure_of([] {}));
  const auto memory = failure_of([] { throw std::bad_alloc(); });
  ASSERT_TRUE(memory);
  EXPECT_TRUE(memory->of_limit);
  EXPECT_NE(memory->text.find("too little memory"), std::string::npos);
  const auto limit = failure_of([] { throw DoesNotFit("12 GiB are missing\nledger"); });
  ASSERT_TRUE(limit);
  EXPECT_TRUE(limit->of_limit);
  EXPECT_EQ(limit->text, "12 GiB are missing");
  const auto drive = failure_of([] { throw CorruptData("block 3 is not what was written"); });
  ASSERT_TRUE(drive);
  EXPECT_FALSE(drive->of_limit);
  EXPECT_THROW(failure_of([] { throw std::logic_error("a bug"); }), std::logic_error);
}

}  // namespace
}  // namespace headrace::tune
