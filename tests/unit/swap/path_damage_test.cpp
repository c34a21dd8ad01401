// Damage that parity rebuilds: told once a path, counted, and a reason to give a path up when there is much
// of it.
#include "swap/path_damage.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using swap::PathDamage;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

int count_of(const std::string& text, std::string_view part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PathDamage, a_version_of_a_piece_counts_once_and_the_next_version_at_its_place_again) {
  PathDamage damage(2);
  EXPECT_TRUE(damage.note(1, 4096, 7));
  EXPECT_FALSE(damage.note(1, 4096, 7));
  EXPECT_TRUE(damage.note(1, 4096, 9));
  EXPECT_TRUE(damage.note(1, 0, 9));
  EXPECT_EQ(damage.pieces(1), 3u);
  EXPECT_EQ(damage.pieces(0), 0u);
}

TEST(PathDamage, many_damaged_pieces_are_too_much_unless_what_they_lie_on_is_needed) {
  PathDamage damage(4);
  for (std::uint64_t piece = 1; piece < PathDamage::most_pieces; ++piece) damage.note(1);
  EXPECT_FALSE(damage.is_too_much(1, 0, 1));
  damage.note(1);
  EXPECT_TRUE(damage.is_too_much(1, 0, 1));
  EXPECT_FALSE(damage.is_too_much(1, 1 << 3, 1)) << "another path is lost already";
  EXPECT_TRUE(damage.is_too_much(1, 1 << 3, 2));
  damage.note(2);
  EXPECT_FALSE(damage.is_too_much(1, 0, 1)) << "what is damaged on path 2 needs path 1";
  EXPECT_FALSE(damage.is_too_much(1, 1 << 3, 2));
  EXPECT_TRUE(damage.is_too_much(1, 1 << 2, 2)) << "path 2 is lost with its damage";
}

class DamagedPathsTest : public SwapPathsTest {
 protected:
  static constexpr std::uint32_t blocks = 60;
  std::unique_ptr<SwapStore> create_committed(std::uint32_t paths, std::uint32_t parity) {
    auto store = create(options(paths, parity), std::vector<Bytes>(blocks, 8192));
    commit_and_release(*store, 1);
    return store;
  }
  // Damages the block's piece on path p where it holds data; returns whether it does.
  bool damage(const SwapStore& store, std::uint32_t block, std::uint32_t p, std::uint32_t data_pieces) {
    const auto extents = store.extents(block);
    for (std::uint32_t piece = 0; piece < data_pieces; ++piece) {
      if (!extents[piece].path.starts_with(path(p) + "/")) continue;
      flip_bit(extents[piece].path, extents[piece].offset + 5);
      return true;
    }
    return false;
  }
};

TEST_F(DamagedPathsTest, a_path_with_many_damaged_pieces_is_given_up_with_one_warning_and_repaired) {
  const SwapStoreOptions there = options(3, 1);
  ::testing::internal::CaptureStderr();
  {
    const auto store = create_committed(3, 1);
    for (std::uint32_t block = 0; block < blocks; ++block) damage(*store, block, 1, 2);
    EXPECT_TRUE(holds_step(*store, 1));
    EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(1)});
    commit_and_release(*store, 2);
    EXPECT_TRUE(holds_step(*store, 2));
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(told, "is damaged in"), 1) << told;
  EXPECT_EQ(count_of(told, "is lost"), 1) << told;
  EXPECT_THAT(told, HasSubstr(fmt::format("{} damaged pieces", PathDamage::most_pieces)));
  EXPECT_EQ(SwapStore::describe(there.directories).paths[1].state, SwapPath::State::stale);
  EXPECT_TRUE(SwapStore::repair(there.directories, *engine_).paths[1].rejoined);
  const auto store = open(there);
  EXPECT_THAT(store->lost_directories(), IsEmpty());
  for (std::uint32_t block = 0; block < blocks; ++block) EXPECT_THAT(store->damage(block), IsEmpty());
}

// Each step is written to the place that the one before it does not lie in: every second one meets the bad
// place.
TEST_F(DamagedPathsTest, a_place_that_damages_every_version_is_reason_to_give_its_path_up) {
  const auto store = create(options(3, 1), {8192});
  commit_and_release(*store, 1);
  const SwapStore::Extent bad = store->extents(0)[0];
  plan_->add({.direction = IoDirection::read,
              .path_suffix = bad.path.substr(folder_.path().size()),
              .begin = bad.offset,
              .end = bad.offset + bad.length,
              .code = EIO});
  std::uint64_t step = 1;
  for (; store->lost_directories().empty(); ++step) {
    ASSERT_LT(step, 3 * PathDamage::most_pieces);
    EXPECT_TRUE(holds_step(*store, step));
    EXPECT_TRUE(holds_step(*store, step));
    commit_and_release(*store, step + 1);
  }
  EXPECT_EQ(step, 2 * PathDamage::most_pieces);
}

TEST_F(DamagedPathsTest, much_damage_on_a_degraded_store_is_one_warning_a_path_and_a_count_at_the_end) {
  const SwapStoreOptions there = options(4, 2);
  std::uint64_t on_path_0 = 0, on_path_1 = 0;
  {
    const auto store = create_committed(4, 2);
    for (std::uint32_t block = 0; block < 20; ++block) on_path_0 += damage(*store, block, 0, 2);
    for (std::uint32_t block = 20; block < blocks; ++block) on_path_1 += damage(*store, block, 1, 2);
  }
  ASSERT_GT(on_path_0, 1u);
  fs::remove_all(path(3));
  ::testing::internal::CaptureStderr();
  {
    const auto store = open(there);
    for (int again = 0; again < 2; ++again) EXPECT_TRUE(holds_step(*store, 1));
    EXPECT_EQ(store->lost_directories(), std::vector<std::string>{path(3)});
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of(told, "warning"), 5) << told;
  EXPECT_EQ(count_of(told, "is damaged in " + path(0)), 1) << told;
  EXPECT_EQ(count_of(told, "is damaged in " + path(1)), 1) << told;
  EXPECT_THAT(
      told, HasSubstr(fmt::format("{} damaged pieces were read from the swap path {}", on_path_0, path(0))));
  EXPECT_THAT(
      told, HasSubstr(fmt::format("{} damaged pieces were read from the swap path {}", on_path_1, path(1))));
}

TEST_F(DamagedPathsTest, a_much_damaged_path_is_kept_as_long_as_damage_on_another_needs_it) {
  const auto store = create_committed(3, 1);
  std::uint64_t on_path_0 = 0;
  for (std::uint32_t block = 0; block < blocks - 3; ++block) on_path_0 += damage(*store, block, 0, 2);
  ASSERT_GT(on_path_0, PathDamage::most_pieces);
  for (std::uint32_t block = blocks - 3; block < blocks; ++block) damage(*store, block, 1, 2);
  for (std::uint32_t block = blocks; block-- > 0;) EXPECT_TRUE(block_holds(*store, block, seed_of(1, block)));
  EXPECT_THAT(store->lost_directories(), IsEmpty());
}

TEST_F(DamagedPathsTest, a_reader_beside_the_run_gives_nothing_up) {
  {
    const auto store = create_committed(3, 1);
    for (std::uint32_t block = 0; block < blocks; ++block) damage(*store, block, 1, 2);
  }
  const auto store = SwapStore::open_read_only(options(3, 1).directories, *engine_);
  EXPECT_TRUE(holds_step(*store, 1));
  EXPECT_THAT(store->lost_directories(), IsEmpty());
}

}  // namespace
}  // namespace headrace::testing
