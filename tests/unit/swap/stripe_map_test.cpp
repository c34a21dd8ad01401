// Where pieces lie: pure arithmetic, for every number of paths and parity.
#include "swap/stripe_map.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "headrace/errors.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::swap {
namespace {

using testing::blocks_of;

StripeMap map_of(const std::vector<SwapBlock>& blocks, const StripeShape& shape,
                 const std::vector<double>& rates = {}) {
  return {blocks, shape, place_blocks(blocks, shape, rates)};
}

TEST(StripeMap, pieces_are_aligned_disjoint_and_fill_each_file) {
  const std::vector<SwapBlock> blocks = blocks_of({1, 0, 4096, 4097, 100'000, 8192});
  for (std::uint32_t paths = 1; paths <= 5; ++paths)
    for (std::uint32_t parity = 0; parity < paths; ++parity)
      for (const Durability durability : {Durability::step, Durability::none}) {
        const StripeMap map = map_of(blocks, {paths, parity, durability});
        std::vector<std::vector<bool>> taken(paths);
        for (std::uint32_t p = 0; p < paths; ++p) taken[p].resize(map.file_bytes(p) / 4096);
        for (std::uint32_t block = 0; block < blocks.size(); ++block) {
          EXPECT_GE(map.buffer_bytes(block), blocks[block].bytes);
          EXPECT_EQ(map.buffer_bytes(block), map.piece_bytes(block) * map.shape().data_pieces());
          std::vector<bool> used(paths);
          for (std::uint32_t piece = 0; piece < map.shape().pieces(); ++piece) {
            const std::uint32_t path = map.path_of(block, piece);
            EXPECT_FALSE(used[path]) << "two pieces of one block on one path";
            used[path] = true;
            for (std::uint32_t copy = 0; copy < map.shape().copies(); ++copy)
              for (Bytes at = 0; at < map.piece_bytes(block); at += 4096) {
                const std::uint64_t offset = map.offset(block, piece, copy) + at;
                EXPECT_EQ(offset % 4096, 0u);
                EXPECT_FALSE(taken[path].at(offset / 4096));
                taken[path][offset / 4096] = true;
              }
          }
        }
        for (const auto& file : taken) EXPECT_EQ(std::count(file.begin(), file.end(), false), 0);
      }
}

TEST(StripeMap, one_path_is_laid_out_as_one_file_of_whole_blocks) {
  const StripeMap map = map_of(blocks_of({1, 0, 4096, 4097}), {});
  EXPECT_EQ(map.file_bytes(0), 2u * (4096 + 0 + 4096 + 8192));
  EXPECT_EQ(map.offset(3, 0, 0), 8192u);
  EXPECT_EQ(map.offset(3, 0, 1), 16384u + 8192);
  EXPECT_EQ(map.checked_bytes(3), 4097u);
}

TEST(StripeMap, offsets_are_64_bit) {
  const std::vector<SwapBlock> blocks(5, {"b", Bytes{3} << 30});
  EXPECT_EQ(map_of(blocks, {}).offset(4, 0, 1), Bytes{27} << 30);
  EXPECT_EQ(map_of(blocks, {}).file_bytes(0), Bytes{30} << 30);
  EXPECT_EQ(map_of(blocks, {3, 1}).file_bytes(2), Bytes{15} << 30);
  EXPECT_THROW(map_of({{"b", UINT64_MAX}}, {}), DoesNotFit);
  EXPECT_THROW(map_of({{"a", Bytes{1} << 61}, {"b", Bytes{1} << 61}}, {}), DoesNotFit);
}

TEST(StripeMap, the_free_copy_is_the_one_that_no_reserved_version_holds) {
  const StripeMap map = map_of(blocks_of({4096}), {});
  const ExtentTable at0{{0, 1, 0, 0}}, at1{{4096, 2, 0, 0}}, never{{}};
  using Tables = std::vector<const ExtentTable*>;
  const auto free_copy = [&](const Tables& reserved) { return map.free_copy(0, reserved); };
  EXPECT_EQ(free_copy({}), 0u);
  EXPECT_EQ(free_copy({&never}), 0u);
  EXPECT_EQ(free_copy({&at0}), 1u);
  EXPECT_EQ(free_copy({&at0, &never}), 1u);
  EXPECT_EQ(free_copy({&at0, &at0}), 1u);
  EXPECT_EQ(free_copy({&at1}), 0u);
  EXPECT_THROW((void)free_copy({&at1, &at0}), std::logic_error);
}

TEST(StripeMap, every_pin_has_a_copy_of_its_own_beside_the_last_two) {
  const StripeMap map = map_of(blocks_of({4096}), {.pins = 2});
  EXPECT_EQ(map.file_bytes(0), Bytes{4 * 4096});
  const ExtentTable at0{{0, 1, 0, 0}}, at1{{4096, 2, 0, 0}}, at2{{8192, 3, 0, 0}}, at3{{12288, 4, 0, 0}};
  EXPECT_EQ(map.free_copy(0, std::vector{&at3, &at0, &at1}), 2u);
  EXPECT_EQ(map.free_copy(0, std::vector{&at2, &at0, &at1}), 3u);
  EXPECT_THROW((void)map.free_copy(0, std::vector{&at3, &at0, &at1, &at2}), std::logic_error);
}

TEST(Placement, blocks_are_dealt_in_proportion_to_the_rates_and_neighbours_alternate) {
  const std::vector<SwapBlock> blocks(600, {"b", 3 << 20});
  const auto places = place_blocks(blocks, {3, 0}, {1e9, 2e9, 3e9});
  std::map<std::uint32_t, int> counts;
  for (const std::uint32_t path : places) ++counts[path];
  EXPECT_EQ(counts[0], 100);
  EXPECT_EQ(counts[1], 200);
  EXPECT_EQ(counts[2], 300);
  for (std::size_t i = 0; i + 2 < places.size(); ++i)
    EXPECT_FALSE(places[i] == places[i + 1] && places[i] == places[i + 2]) << i;
  // A slow path is spread over the whole order, not dealt at its end.
  for (std::size_t i = 0; i + 6 <= places.size(); i += 6)
    EXPECT_EQ(std::count(places.begin() + static_cast<std::ptrdiff_t>(i),
                         places.begin() + static_cast<std::ptrdiff_t>(i) + 6, 0u),
              1);
}

TEST(Placement, without_rates_paths_take_turns_and_large_blocks_count_for_their_bytes) {
  const auto turns = place_blocks(std::vector<SwapBlock>(6, {"b", 4096}), {3, 0}, {});
  EXPECT_EQ(turns, (std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2}));
  std::vector<SwapBlock> mixed;
  for (int i = 0; i < 300; ++i) mixed.push_back({"b", i % 3 == 0 ? Bytes{3} << 20 : Bytes{1} << 20});
  std::vector<Bytes> bytes(2);
  const auto places = place_blocks(mixed, {2, 0}, {});
  for (std::size_t i = 0; i < mixed.size(); ++i) bytes[places[i]] += mixed[i].bytes;
  EXPECT_LE(std::max(bytes[0], bytes[1]) - std::min(bytes[0], bytes[1]), Bytes{3} << 20);
}

TEST(Placement, with_parity_the_parity_pieces_take_turns_over_the_paths) {
  const std::vector<SwapBlock> blocks(10, {"b", 1 << 20});
  const StripeMap map = map_of(blocks, {5, 2});
  std::map<std::uint32_t, int> parity_on;
  for (std::uint32_t block = 0; block < blocks.size(); ++block)
    for (std::uint32_t piece = 3; piece < 5; ++piece) ++parity_on[map.path_of(block, piece)];
  for (std::uint32_t path = 0; path < 5; ++path) EXPECT_EQ(parity_on[path], 4);
}

}  // namespace
}  // namespace headrace::swap
