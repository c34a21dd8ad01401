// What is written to a block is what is read from it, or an error that names the block.
#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

class SwapStoreTest : public OnBothEngines {};
INSTANTIATE_TEST_SUITE_P(Engines, SwapStoreTest, both_engines, engine_test_name);

TEST_P(SwapStoreTest, what_is_committed_is_read_back_by_a_later_open) {
  {
    const auto store = create(odd_sizes);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      commit_step(*store, step);
      store->release_superseded();
      EXPECT_TRUE(holds_step(*store, step));
    }
  }
  const auto store = open();
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{5}));
  EXPECT_EQ(store->commits().back().metadata, "metadata of step 5");
  EXPECT_TRUE(holds_step(*store, 5));
  commit_step(*store, 6);
  EXPECT_TRUE(holds_step(*store, 6));
}

TEST_P(SwapStoreTest, a_write_never_touches_the_extent_it_replaces) {
  const auto store = create({12289, 4096});
  commit_step(*store, 1);
  const SwapStore::Extent before = store->extents(0)[0];
  write_block(*store, 0, 77);
  const SwapStore::Extent after = store->extents(0)[0];
  EXPECT_NE(after.offset, before.offset);
  EXPECT_EQ(after.generation, before.generation + 1);
  std::vector<std::byte> old(before.length);
  std::FILE* file = std::fopen(before.path.c_str(), "rb");
  std::fseek(file, static_cast<long>(before.offset), SEEK_SET);
  ASSERT_EQ(std::fread(old.data(), 1, old.size(), file), old.size());
  std::fclose(file);
  EXPECT_TRUE(holds(old, seed_of(1, 0)));
  EXPECT_EQ(crc32c(old), before.crc32c);
}

TEST_P(SwapStoreTest, extents_never_overlap_and_padding_is_zero_on_disk) {
  const auto store = create({1, 4097});
  commit_step(*store, 1);
  store->release_superseded();
  commit_step(*store, 2);
  std::ifstream file(store->extents(0)[0].path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(bytes.size(), 2u * (4096 + 8192));
  for (std::uint32_t block = 0; block < 2; ++block) {
    const SwapStore::Extent extent = store->extents(block)[0];
    for (Bytes i = extent.length; i < store->buffer_bytes(block); ++i)
      ASSERT_EQ(bytes[extent.offset + i], 0) << "block " << block << " byte " << i;
  }
}

TEST_P(SwapStoreTest, a_read_sees_the_write_of_the_same_step) {
  const auto store = create({4096});
  commit_step(*store, 1);
  store->release_superseded();
  Buffer written(4096), read(4096);
  fill(written.memory(), 5);
  SwapTicket write = store->write(0, written.lease());
  store->read(0, read.lease()).wait();  // before anybody waited for the write
  EXPECT_TRUE(holds(read.memory(), 5));
  write.wait();
}

TEST_P(SwapStoreTest, the_second_write_of_a_step_replaces_the_first) {
  const auto store = create({4096});
  commit_step(*store, 1);
  const std::uint64_t committed = store->extents(0)[0].offset;
  write_block(*store, 0, 10);
  write_block(*store, 0, 11);
  EXPECT_NE(store->extents(0)[0].offset, committed);
  store->commit({2, ""});
  EXPECT_TRUE(block_holds(*store, 0, 11));
}

TEST_P(SwapStoreTest,
       writes_may_be_in_flight_together_and_a_dropped_ticket_returns_its_buffer_at_commit_time) {
  const std::vector<Bytes> sizes(40, 8193);
  const auto store = create(sizes);
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (std::uint32_t block = 0; block < sizes.size(); ++block) {
    buffers.push_back(std::make_unique<Buffer>(store->buffer_bytes(block)));
    fill(buffers.back()->memory().first(8193), seed_of(1, block));
  }
  std::vector<SwapTicket> kept;
  for (std::uint32_t block = 0; block < sizes.size(); ++block) {
    SwapTicket ticket = store->write(block, buffers[block]->lease());
    if (block % 2 == 0) kept.push_back(std::move(ticket));
  }
  store->commit({1, "m"});
  EXPECT_EQ(kept.front().take().data(), buffers[0]->memory().data());
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_P(SwapStoreTest, a_block_not_written_in_a_step_keeps_its_version) {
  const auto store = create({4096, 4096});
  commit_step(*store, 1);
  store->release_superseded();
  const SwapStore::Extent kept = store->extents(1)[0];
  write_block(*store, 0, 50);
  store->commit({2, ""});
  store->release_superseded();
  write_block(*store, 0, 51);
  store->commit({3, ""});
  EXPECT_EQ(store->extents(1)[0].offset, kept.offset);
  EXPECT_EQ(store->extents(1)[0].generation, 1u);
  EXPECT_EQ(store->extents(0)[0].generation, 3u);
  EXPECT_TRUE(block_holds(*store, 0, 51));
  EXPECT_TRUE(block_holds(*store, 1, seed_of(1, 1)));
}

TEST_P(SwapStoreTest, a_flipped_bit_in_an_extent_is_an_error_naming_block_path_and_offset) {
  for (const Bytes position : {Bytes{0}, Bytes{6000}, Bytes{12288}}) {
    const auto store = create({4096, 12289});
    commit_step(*store, 1);
    const SwapStore::Extent extent = store->extents(1)[0];
    flip_bit(extent.path, extent.offset + position);
    const std::string message = message_of<CorruptData>([&] { block_holds(*store, 1, 0); });
    EXPECT_THAT(message, HasSubstr("block1"));
    EXPECT_THAT(message, HasSubstr(extent.path));
    EXPECT_THAT(message, HasSubstr("offset " + std::to_string(extent.offset)));
    EXPECT_TRUE(block_holds(*store, 0, seed_of(1, 0)));
    store->remove_on_close();
  }
}

TEST_P(SwapStoreTest, bytes_that_failed_their_check_are_not_handed_out_by_forgetting_to_wait) {
  const auto store = create({4096});
  commit_step(*store, 1);
  flip_bit(store->extents(0)[0].path, store->extents(0)[0].offset);
  Buffer buffer(4096);
  SwapTicket ticket = store->read(0, buffer.lease());
  EXPECT_THROW((void)ticket.take(), CorruptData);
}

TEST_P(SwapStoreTest, reading_a_block_never_written_and_a_block_out_of_range_are_bugs_that_are_caught) {
  const auto store = create({4096, 0});
  Buffer buffer(4096);
  EXPECT_THROW((void)store->read(0, buffer.lease()), std::logic_error);
  EXPECT_THROW((void)store->read(1, buffer.lease()), std::logic_error);
  EXPECT_THROW((void)store->read(2, buffer.lease()), std::logic_error);
  EXPECT_THROW((void)store->write(2, buffer.lease()), std::logic_error);
  EXPECT_THROW((void)store->buffer_bytes(2), std::logic_error);
}

TEST_P(SwapStoreTest, a_buffer_smaller_than_the_extent_is_a_bug_that_is_caught) {
  const auto store = create({4097});
  Buffer buffer(4097);
  EXPECT_EQ(store->buffer_bytes(0), 8192u);
  EXPECT_THROW((void)store->write(0, buffer.lease()), std::logic_error);
}

TEST_P(SwapStoreTest, a_store_of_no_blocks_commits_and_resumes) {
  {
    const auto store = create({});
    commit_step(*store, 1);
    store->release_superseded();
    commit_step(*store, 2);
  }
  EXPECT_EQ(open()->commits().back().step, 2u);
}

TEST_P(SwapStoreTest, a_block_of_no_bytes_does_no_io_and_counts_its_generations) {
  const auto store = create({0});
  const Bytes written = engine().counters().written_bytes;
  commit_step(*store, 1);
  store->release_superseded();
  commit_step(*store, 2);
  EXPECT_EQ(engine().counters().written_bytes, written);
  EXPECT_EQ(store->extents(0)[0].generation, 2u);
  EXPECT_TRUE(holds_step(*store, 2));
}

}  // namespace
}  // namespace headrace::testing
