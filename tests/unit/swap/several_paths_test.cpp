// One store over several paths, with and without parity: what is made where, and how it is found again.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/support/power_loss/syscall_hook.h"
#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(SwapPathsTest,
       every_number_of_paths_and_parity_keeps_its_steps_and_does_without_any_paths_up_to_parity) {
  for (std::uint32_t paths = 1; paths <= 5; ++paths)
    for (std::uint32_t parity = 0; parity < std::min(paths, 4u); ++parity) {
      const SwapStoreOptions there = options(paths, parity);
      {
        const auto store = create(there, many_odd_sizes);
        for (std::uint64_t step = 1; step <= 3; ++step) commit_and_release(*store, step);
        ASSERT_TRUE(holds_step(*store, 3)) << paths << " paths, parity " << parity;
      }
      for (std::uint32_t lost = 0; lost < 1u << paths; ++lost) {  // which ones are away
        if (static_cast<std::uint32_t>(__builtin_popcount(lost)) > parity) continue;
        for (std::uint32_t p = 0; p < paths; ++p)
          if ((lost >> p & 1) != 0) fs::rename(path(p), path(p) + ".away");
        const auto store = SwapStore::open_read_only(there.directories, *engine_);
        EXPECT_EQ(store->lost_directories().size(), static_cast<std::size_t>(__builtin_popcount(lost)));
        ASSERT_TRUE(holds_step(*store, 3)) << paths << " paths, parity " << parity << ", lost " << lost;
        for (std::uint32_t p = 0; p < paths; ++p)
          if ((lost >> p & 1) != 0) fs::rename(path(p) + ".away", path(p));
      }
      SwapStore::remove(there.directories);
      ASSERT_TRUE(folder_.names().empty());
    }
}

TEST_F(SwapPathsTest, a_path_holds_its_part_of_the_blocks_alone) {
  SwapStoreOptions there = options(3);
  there.path_rates = {1e9, 2e9, 1e9};
  const auto store = create(there, std::vector<Bytes>(8, 1 << 16));
  for (std::uint32_t p = 0; p < 3; ++p)
    EXPECT_EQ(fs::file_size(path(p) + "/extents.bin"), 2u * (p == 1 ? 4 : 2) << 16);
  commit_and_release(*store, 1);
  EXPECT_TRUE(holds_step(*store, 1));
  const std::vector<Bytes> bytes = SwapStore::disk_bytes(store->blocks(), there);
  EXPECT_EQ(bytes[0], bytes[2]);
  EXPECT_EQ(bytes[1] - bytes[0], 4u << 16);
}

TEST_F(SwapPathsTest, folders_are_recognised_in_any_order_and_at_other_places) {
  { commit_and_release(*create(options(3, 1)), 1); }
  SwapStoreOptions moved = options(3, 1);
  fs::rename(path(1), folder_.path("elsewhere"));
  moved.directories = {path(2), path(0), folder_.path("elsewhere")};
  const auto store = open(moved);
  EXPECT_TRUE(store->lost_directories().empty());
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_F(SwapPathsTest, too_few_or_repeated_folders_and_senseless_parity_are_refused) {
  const auto refusal = [&](const SwapStoreOptions& there) {
    return message_of<UsageError>([&] { create(there); });
  };
  EXPECT_THAT(refusal(options(2, 2)), HasSubstr("parity 2 needs more than 2"));
  SwapStoreOptions twice = options(1);
  twice.directories.push_back(folder_.path() + "/./p0/");
  EXPECT_THAT(refusal(twice), AllOf(HasSubstr("same folder"), HasSubstr(path(0))));
  SwapStoreOptions rates = options(2);
  rates.path_rates = {1e9};
  EXPECT_THAT(refusal(rates), HasSubstr("2 swap paths have 1 rates"));
  EXPECT_TRUE(folder_.names().empty());
  { commit_and_release(*create(options(3)), 1); }
  EXPECT_THAT(message_of<UsageError>([&] { open(options(2)); }),
              AllOf(HasSubstr("has 3 paths"), HasSubstr(path(2))));
  EXPECT_THAT(message_of<UsageError>([&] { open(options(3, 1)); }), HasSubstr("parity 0"));
  EXPECT_EQ(SwapStore::directories_of(path(1)), options(3).directories);
}

TEST_F(SwapPathsTest, a_store_that_cannot_be_made_on_one_path_leaves_nothing_on_any) {
  std::ofstream(path(1)) << "a file";
  EXPECT_THAT(message_of<UsageError>([&] { create(options(3, 1)); }), HasSubstr(path(1)));
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"p1"});
  fs::remove(path(1));
  const SyscallHook hook(folder_.path(), failing(FileCall::reserve, "p2/extents.bin", ENOSPC));
  EXPECT_THAT(message_of<DoesNotFit>([&] { create(options(3, 1)); }), HasSubstr(path(2)));
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(SwapPathsTest, a_missing_path_without_parity_is_refused_by_name) {
  { commit_and_release(*create(options(3)), 1); }
  fs::remove_all(path(1));
  EXPECT_THAT(message_of<UsageError>([&] { open(options(3)); }), HasSubstr(path(1)));
  EXPECT_FALSE(fs::exists(path(1)));
}

TEST_F(SwapPathsTest, more_lost_paths_than_parity_are_refused_by_name) {
  { commit_and_release(*create(options(4, 1)), 1); }
  fs::remove_all(path(1));
  fs::remove(path(3) + "/journal.bin");
  EXPECT_THAT(message_of<CorruptData>([&] { open(options(4, 1)); }),
              AllOf(HasSubstr(path(1)), HasSubstr(path(3)), HasSubstr("2 of its 4")));
}

TEST_F(SwapPathsTest, disk_bytes_of_senseless_options_are_refused) {
  const std::vector<SwapBlock> blocks = blocks_of({4096});
  EXPECT_THROW((void)SwapStore::disk_bytes(blocks, options(2, 2)), UsageError);
  SwapStoreOptions rates = options(2);
  rates.path_rates = {0, 0};
  EXPECT_THROW((void)SwapStore::disk_bytes(blocks, rates), UsageError);
}

TEST_F(SwapPathsTest, writes_need_no_more_parity_memory_than_was_agreed_and_use_the_callers) {
  SwapStoreOptions there = options(3, 1);
  there.parity_buffers = 1;
  const std::vector<SwapBlock> blocks = blocks_of(std::vector<Bytes>(20, 10'000));
  const Bytes bytes = SwapStore::parity_bytes(blocks, there);
  EXPECT_EQ(bytes, 2u * 8192);
  EXPECT_EQ(SwapStore::parity_bytes(blocks, options(3)), 0u);
  Buffer memory(bytes);
  there.parity_memory = memory.memory();
  const auto store = SwapStore::create(there, blocks, *engine_);
  commit_and_release(*store, 1);  // 20 writes in flight with one buffer
  fs::remove_all(path(1));
  commit_and_release(*store, 2);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<SwapTicket> reads;
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    buffers.push_back(std::make_unique<Buffer>(store->buffer_bytes(block)));
    reads.push_back(store->read(block, buffers.back()->lease()));
  }
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    reads[block].wait();
    EXPECT_TRUE(holds(buffers[block]->memory().first(10'000), seed_of(2, block)));
  }
}

TEST_F(SwapPathsTest, rates_of_folders_are_measured_and_leave_no_file) {
  const TemporaryFolder on_disk;
  fs::create_directory(on_disk.path("p0"));
  const std::vector<double> rates =
      measure_path_rates({on_disk.path("p0"), on_disk.path("missing")}, *engine_);
  const bool direct = IoFile::open(on_disk.path("file"), IoFile::Mode::create).direct();
  EXPECT_EQ(rates[0] > 1e6, direct) << "the page cache says nothing of a drive";
  EXPECT_EQ(rates[1], 0);
  EXPECT_TRUE(on_disk.names("p0").empty());
}

}  // namespace
}  // namespace headrace::testing
