// Pieces that cannot be read or hold other bytes: rebuilt by parity, and named.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(SwapPathsTest, a_bad_place_is_rebuilt_with_one_warning_and_the_path_stays) {
  const auto store = create(options(3, 1), {100'000, 100'000});
  commit_and_release(*store, 1);
  const SwapStore::Extent flipped = store->extents(0)[1], unreadable = store->extents(1)[1];
  flip_bit(flipped.path, flipped.offset + 77);
  plan_->add({.direction = IoDirection::read,
              .path_suffix = unreadable.path.substr(folder_.path().size()),
              .begin = unreadable.offset,
              .end = unreadable.offset + 1,
              .code = EIO});
  ::testing::internal::CaptureStderr();
  for (int again = 0; again < 3; ++again) EXPECT_TRUE(holds_step(*store, 1));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(store->lost_directories().empty());
  for (const auto& extent : {flipped, unreadable}) {
    const std::string place = fmt::format("{} at offset {}", extent.path, extent.offset);
    EXPECT_NE(told.find(place), std::string::npos) << told;
    EXPECT_EQ(told.find(place), told.rfind(place)) << told;
  }
  EXPECT_EQ(store->damage(0).size(), 1u);
  plan_->clear();
  commit_and_release(*store, 2);
  EXPECT_TRUE(store->damage(0).empty());
}

TEST_F(SwapPathsTest, more_damage_than_parity_makes_up_for_names_every_place) {
  const auto store = create(options(3, 1), {100'000});
  commit_and_release(*store, 1);
  for (const int piece : {0, 2}) flip_bit(store->extents(0)[piece].path, store->extents(0)[piece].offset);
  EXPECT_THAT(
      message_of<CorruptData>([&] { block_holds(*store, 0, 0); }),
      AllOf(HasSubstr("block0"), HasSubstr(store->extents(0)[0].path), HasSubstr(store->extents(0)[2].path)));
  EXPECT_EQ(store->damage(0).size(), 2u);
}

TEST_F(SwapPathsTest, damage_beside_a_lost_path_is_still_found_in_parity_too) {
  std::vector<SwapStore::Extent> extents;
  {
    const auto store = create(options(4, 2), {100'000});
    commit_and_release(*store, 1);
    extents = store->extents(0);
  }
  fs::remove_all(fs::path(extents[0].path).parent_path());
  flip_bit(extents[3].path, extents[3].offset);
  const auto store = SwapStore::open_read_only(options(4, 2).directories, *engine_);
  const std::vector<SwapStore::DamagedPiece> damage = store->damage(0);
  ASSERT_EQ(damage.size(), 1u);
  EXPECT_EQ(damage[0].piece, 3u);
  EXPECT_THAT(damage[0].problem, HasSubstr(extents[3].path));
}

}  // namespace
}  // namespace headrace::testing
