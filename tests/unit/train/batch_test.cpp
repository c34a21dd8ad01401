#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/config.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

using testing::HasSubstr;

BatchSizes resolve(std::uint64_t global, std::uint64_t micro, std::uint64_t accumulation,
                   std::uint64_t world) {
  return resolve_batch({global, micro, accumulation, world}, "mpirun");
}

std::string refusal(std::uint64_t global, std::uint64_t micro, std::uint64_t accumulation,
                    std::uint64_t world) {
  try {
    resolve(global, micro, accumulation, world);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// FIELD-CASES G1.
TEST(Batch, any_two_of_three_give_the_third) {
  for (const std::uint64_t world : {1u, 2u, 3u, 4u})
    for (const std::uint64_t micro : {1u, 3u, 8u})
      for (const std::uint64_t accumulation : {1u, 2u, 5u}) {
        const std::uint64_t global = micro * accumulation * world;
        EXPECT_EQ(resolve(0, micro, accumulation, world).global, global);
        EXPECT_EQ(resolve(global, 0, accumulation, world).micro, micro);
        EXPECT_EQ(resolve(global, micro, 0, world).accumulation, accumulation);
        EXPECT_EQ(resolve(global, micro, accumulation, world).global, global);
      }
}

TEST(Batch, one_alone_takes_no_accumulation) {
  EXPECT_EQ(resolve(12, 0, 0, 3).micro, 4u);
  EXPECT_EQ(resolve(12, 0, 0, 3).accumulation, 1u);
  EXPECT_EQ(resolve(0, 4, 0, 3).global, 12u);
  EXPECT_EQ(resolve(0, 0, 2, 3).global, resolve(0, 0, 0, 1).micro * 6);
}

TEST(Batch, a_contradiction_names_all_numbers_and_where_the_world_size_came_from) {
  const std::string text = refusal(32, 4, 2, 2);
  for (const char* part : {"32", "4", "2", "16", "mpirun"}) EXPECT_THAT(text, HasSubstr(part));
}

TEST(Batch, an_indivisible_batch_is_refused_with_the_numbers) {
  EXPECT_THAT(refusal(10, 0, 0, 4),
              HasSubstr("10 sequences cannot be divided by accumulation x world size = 4"));
  EXPECT_THAT(refusal(10, 4, 0, 1),
              HasSubstr("10 sequences cannot be divided by micro-batch x world size = 4"));
}

TEST(Batch, a_product_beyond_the_type_is_refused_and_does_not_wrap) {
  EXPECT_THAT(refusal(0, 1u << 31, 1u << 31, 4), HasSubstr("is more than"));
  EXPECT_THAT(refusal(1, 1u << 31, 1u << 31, 1u << 31), HasSubstr("is more than"));
}

}  // namespace
}  // namespace headrace
