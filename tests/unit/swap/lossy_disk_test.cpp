#include "tests/support/power_loss/lossy_disk.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

class LossyDiskTest : public ::testing::Test {
 protected:
  FileEvent event(FileCall call, const std::string& name, std::uint64_t offset = 0,
                  const std::string& data = "", const std::string& target = "") const {
    const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
    return {call, folder_.path(name), offset, {bytes, bytes + data.size()}, folder_.path(target)};
  }
  // All images with each unflushed change kept or lost.
  std::set<LossyDisk::Image> images(LossyDisk::Names names = LossyDisk::Names::independent) {
    std::set<LossyDisk::Image> found;
    for (std::size_t mask = 0; mask < std::size_t{1} << disk_.unflushed(); ++mask) {
      std::vector<Fate> fates;
      for (std::size_t i = 0; i < disk_.unflushed(); ++i)
        fates.push_back((mask >> i) % 2 != 0 ? Fate::keep : Fate::lose);
      found.insert(disk_.image(fates, random_, names));
    }
    return found;
  }

  TemporaryFolder folder_{memory_folder()};
  LossyDisk disk_{folder_.path()};
  std::mt19937 random_{1};
};
using Images = std::set<LossyDisk::Image>;

TEST_F(LossyDiskTest, a_flushed_file_whose_folder_is_not_flushed_may_be_gone_and_is_never_empty) {
  disk_.apply(event(FileCall::create, "a"));
  disk_.apply(event(FileCall::write, "a", 0, "data"));
  disk_.apply(event(FileCall::sync, "a"));
  EXPECT_EQ(images(), (Images{{}, {{"a", "data"}}}));
  disk_.apply(event(FileCall::sync, ""));
  EXPECT_EQ(images(), (Images{{{"a", "data"}}}));
}

TEST_F(LossyDiskTest, a_flushed_folder_does_not_keep_the_contents_of_its_files) {
  disk_.apply(event(FileCall::create, "a"));
  disk_.apply(event(FileCall::write, "a", 0, "data"));
  disk_.apply(event(FileCall::sync, ""));
  EXPECT_EQ(images(), (Images{{{"a", ""}}, {{"a", "data"}}}));
}

TEST_F(LossyDiskTest, a_rename_takes_the_file_along_whatever_becomes_of_the_name_it_had) {
  disk_.apply(event(FileCall::create, "a"));
  disk_.apply(event(FileCall::rename, "a", 0, "", "b"));
  EXPECT_EQ(images(), (Images{{}, {{"a", ""}}, {{"b", ""}}}));
  EXPECT_EQ(images(LossyDisk::Names::in_order), (Images{{}, {{"a", ""}}, {{"b", ""}}}));
  disk_.apply(event(FileCall::create, "a"));
  EXPECT_TRUE(images().contains({{"a", ""}, {"b", ""}}));
  EXPECT_EQ(images(LossyDisk::Names::in_order),
            (Images{{}, {{"a", ""}}, {{"b", ""}}, {{"a", ""}, {"b", ""}}}));
}

TEST_F(LossyDiskTest, two_names_change_places_together_or_not_at_all) {
  for (const char* name : {"a", "b"}) {
    disk_.apply(event(FileCall::create, name));
    disk_.apply(event(FileCall::write, name, 0, name));
    disk_.apply(event(FileCall::sync, name));
  }
  disk_.apply(event(FileCall::sync, ""));
  disk_.apply(event(FileCall::exchange, "a", 0, "", "b"));
  EXPECT_EQ(images(), (Images{{{"a", "a"}, {"b", "b"}}, {{"a", "b"}, {"b", "a"}}}));
  EXPECT_EQ(disk_.current(), (LossyDisk::Image{{"a", "b"}, {"b", "a"}}));
}

TEST_F(LossyDiskTest, torn_writes_mix_old_and_new_in_sectors) {
  disk_.apply(event(FileCall::create, "a"));
  disk_.apply(event(FileCall::write, "a", 0, std::string(1200, 'o')));
  disk_.apply(event(FileCall::sync, "a"));
  disk_.apply(event(FileCall::sync, ""));
  disk_.apply(event(FileCall::write, "a", 8, std::string(1192, 'n')));
  std::set<std::string> found;
  for (int i = 0; i < 200; ++i)
    found.insert(disk_.image({Fate::tear}, random_, LossyDisk::Names::independent)["a"]);
  EXPECT_EQ(found.size(), 8u);
  EXPECT_TRUE(found.contains(std::string(512, 'o') + std::string(512, 'n') + std::string(176, 'o')));
}

TEST_F(LossyDiskTest, what_a_failed_flush_lost_no_later_flush_brings_back) {
  disk_.apply(event(FileCall::create, "a"));
  disk_.apply(event(FileCall::sync, ""));
  disk_.apply(event(FileCall::write, "a", 0, "1"));
  disk_.apply_failed(event(FileCall::sync, "a"));
  disk_.apply(event(FileCall::write, "a", 1, "2"));
  disk_.apply(event(FileCall::sync, "a"));
  EXPECT_EQ(images(), (Images{{{"a", "12"}}, {{"a", std::string("\0002", 2)}}}));
}

TEST_F(LossyDiskTest, names_in_order_whose_flush_failed_come_with_those_of_a_later_flush) {
  disk_.apply(event(FileCall::create, "a"));
  disk_.apply_failed(event(FileCall::sync, ""));
  EXPECT_EQ(images(LossyDisk::Names::in_order), (Images{{}, {{"a", ""}}}));
  disk_.apply(event(FileCall::create, "b"));
  disk_.apply(event(FileCall::sync, ""));
  EXPECT_EQ(images(LossyDisk::Names::in_order), (Images{{{"a", ""}, {"b", ""}}}));
  EXPECT_EQ(images(), (Images{{{"b", ""}}, {{"a", ""}, {"b", ""}}}));
}

TEST_F(LossyDiskTest, what_a_flush_would_have_covered_is_left_out_until_the_next_one) {
  disk_.apply(event(FileCall::create, "a"));
  disk_.apply(event(FileCall::write, "a", 0, "1"));
  disk_.leave_out(event(FileCall::sync, "a"));
  disk_.apply(event(FileCall::write, "a", 1, "2"));
  EXPECT_EQ(disk_.left_out(), (std::vector<bool>{false, true, false}));
  disk_.apply(event(FileCall::sync, "a"));
  EXPECT_EQ(disk_.left_out(), (std::vector<bool>{false}));
}

TEST_F(LossyDiskTest, what_was_there_at_the_start_is_durable) {
  std::filesystem::create_directory(folder_.path("f"));
  std::ofstream(folder_.path("f/a")) << "old";
  LossyDisk disk(folder_.path());
  EXPECT_EQ(disk.unflushed(), 0u);
  EXPECT_EQ(disk.current(), (LossyDisk::Image{{"f/", ""}, {"f/a", "old"}}));
  disk.apply(event(FileCall::truncate, "f/a", 1));
  EXPECT_EQ(disk.current(), (LossyDisk::Image{{"f/", ""}, {"f/a", "o"}}));
}

}  // namespace
}  // namespace headrace::testing
