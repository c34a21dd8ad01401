// What a store keeps, returns and refuses in ordinary use.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

class SwapStoreTest : public OnBothEngines {};
INSTANTIATE_TEST_SUITE_P(Engines, SwapStoreTest, ::testing::Values("threads", "io_uring"));

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
  const SwapStore::Extent before = *store->extent(0);
  write_block(*store, 0, 77);
  const SwapStore::Extent after = *store->extent(0);
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
  std::ifstream file(store->extent(0)->path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(bytes.size(), 2u * (4096 + 8192));
  for (std::uint32_t block = 0; block < 2; ++block) {
    const SwapStore::Extent extent = *store->extent(block);
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
  const std::uint64_t committed = store->extent(0)->offset;
  write_block(*store, 0, 10);
  write_block(*store, 0, 11);
  EXPECT_NE(store->extent(0)->offset, committed);
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

TEST_P(SwapStoreTest, both_steps_are_whole_until_the_release_and_one_after_it) {
  const auto store = create(odd_sizes);
  commit_step(*store, 1);
  store->release_superseded();
  commit_step(*store, 2);
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1, 2}));
  store->release_superseded();
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{2}));
}

TEST_P(SwapStoreTest, a_write_before_the_release_is_a_bug_that_is_caught) {
  const auto store = create({4096, 4096});
  commit_step(*store, 1);
  store->release_superseded();
  commit_step(*store, 2);
  EXPECT_THAT(message_of<std::logic_error>([&] { write_block(*store, 0, 1); }),
              HasSubstr("release_superseded"));
  store->release_superseded();
  write_block(*store, 0, 1);
}

TEST_P(SwapStoreTest, a_block_not_written_in_a_step_keeps_its_version) {
  const auto store = create({4096, 4096});
  commit_step(*store, 1);
  store->release_superseded();
  const SwapStore::Extent kept = *store->extent(1);
  write_block(*store, 0, 50);
  store->commit({2, ""});
  store->release_superseded();
  write_block(*store, 0, 51);
  store->commit({3, ""});
  EXPECT_EQ(store->extent(1)->offset, kept.offset);
  EXPECT_EQ(store->extent(1)->generation, 1u);
  EXPECT_EQ(store->extent(0)->generation, 3u);
  EXPECT_TRUE(block_holds(*store, 0, 51));
  EXPECT_TRUE(block_holds(*store, 1, seed_of(1, 1)));
}

TEST_P(SwapStoreTest, a_step_without_writes_can_be_committed) {
  {
    const auto store = create(odd_sizes);
    commit_step(*store, 1);
    store->release_superseded();
    store->commit({2, "skipped"});
  }
  const auto store = open();
  EXPECT_EQ(store->commits().back().metadata, "skipped");
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_P(SwapStoreTest, a_step_is_committed_once_and_in_order) {
  const auto store = create({4096});
  commit_step(*store, 3);
  store->release_superseded();
  EXPECT_THROW(store->commit({3, ""}), std::logic_error);
  EXPECT_THROW(store->commit({2, ""}), std::logic_error);
}

TEST_P(SwapStoreTest, rollback_drops_the_writes_of_the_step_and_the_next_step_may_use_their_extents) {
  const auto store = create(odd_sizes);
  commit_step(*store, 1);
  store->release_superseded();
  write_step(*store, 9);
  store->rollback();
  EXPECT_TRUE(holds_step(*store, 1));
  commit_step(*store, 2);
  EXPECT_TRUE(holds_step(*store, 2));
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1, 2}));
}

TEST_P(SwapStoreTest, rollback_before_the_first_commit_leaves_blocks_unwritten) {
  const auto store = create({4096});
  write_step(*store, 1);
  store->rollback();
  EXPECT_FALSE(store->extent(0).has_value());
  commit_step(*store, 1);
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_P(SwapStoreTest, going_back_one_step_is_durable_and_the_step_can_be_done_again) {
  {
    const auto store = create(odd_sizes);
    commit_step(*store, 1);
    store->release_superseded();
    commit_step(*store, 2);
  }
  {
    const auto store = open();
    ASSERT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1, 2}));
    EXPECT_TRUE(holds_step(*store, 2));
    store->position_at(1);
    EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1}));
    EXPECT_TRUE(holds_step(*store, 1));
  }
  {
    const auto store = open();
    EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1}));
    commit_step(*store, 2);
    EXPECT_TRUE(holds_step(*store, 2));
  }
  EXPECT_TRUE(holds_step(*open(), 2));
}

TEST_P(SwapStoreTest, going_back_to_a_step_whose_extents_are_damaged_is_refused_and_changes_nothing) {
  const auto store = create({4096, 5000});
  commit_step(*store, 1);
  const std::uint64_t offset = store->extent(1)->offset;
  store->release_superseded();
  commit_step(*store, 2);
  flip_bit(store->extent(1)->path, offset + 4999);
  EXPECT_THAT(message_of<CorruptData>([&] { store->position_at(1); }), HasSubstr("block1"));
  EXPECT_TRUE(holds_step(*store, 2));
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{1, 2}));
}

TEST_P(SwapStoreTest, going_to_the_current_step_keeps_both_and_to_an_unknown_one_is_a_bug) {
  const auto store = create({4096});
  commit_step(*store, 1);
  store->release_superseded();
  commit_step(*store, 2);
  store->position_at(2);
  EXPECT_EQ(store->commits().size(), 2u);
  EXPECT_THROW(store->position_at(7), std::logic_error);
}

TEST_P(SwapStoreTest, a_flipped_bit_in_an_extent_is_an_error_naming_block_path_and_offset) {
  for (const Bytes position : {Bytes{0}, Bytes{6000}, Bytes{12288}}) {
    const auto store = create({4096, 12289});
    commit_step(*store, 1);
    const SwapStore::Extent extent = *store->extent(1);
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
  flip_bit(store->extent(0)->path, store->extent(0)->offset);
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
  EXPECT_EQ(store->extent(0)->generation, 2u);
  EXPECT_TRUE(holds_step(*store, 2));
}

TEST_P(SwapStoreTest, durability_none_updates_in_place_keeps_no_journal_and_cannot_roll_back) {
  const auto store = create(odd_sizes, Durability::none);
  commit_step(*store, 1);
  const std::uint64_t offset = store->extent(3)->offset;
  write_step(*store, 2);
  EXPECT_EQ(store->extent(3)->offset, offset);
  EXPECT_THAT(message_of<Error>([&] { store->rollback(); }), HasSubstr("in place"));
  store->commit({2, ""});
  store->release_superseded();
  store->rollback();  // nothing to drop
  EXPECT_TRUE(holds_step(*store, 2));
  EXPECT_EQ(folder_.names("rank-00000"), (std::vector<std::string>{"extents.bin", "lock", "store.json"}));
  flip_bit(store->extent(3)->path, offset);
  EXPECT_THROW(block_holds(*store, 3, 0), CorruptData);
}

TEST_P(SwapStoreTest, durability_none_takes_one_generation_of_disk_and_is_not_resumed) {
  const Bytes one = SwapStore::disk_bytes(blocks_of({1 << 20}), Durability::none);
  EXPECT_EQ(one, Bytes{1} << 20);
  EXPECT_GE(SwapStore::disk_bytes(blocks_of({1 << 20}), Durability::step), 2 * one);
  create({4096}, Durability::none);
  EXPECT_THAT(message_of<UsageError>([&] { open(); }), HasSubstr("durability \"none\""));
}

TEST_P(SwapStoreTest, disk_bytes_is_what_create_takes) {
  const auto blocks = blocks_of({1 << 20, 4097, 3});
  const auto store = SwapStore::create(options(), blocks, engine());
  struct stat status {};
  Bytes used = 0;
  for (const char* name : {"extents.bin", "journal.bin"}) {
    ASSERT_EQ(::stat((options().directory + "/" + name).c_str(), &status), 0);
    used += static_cast<Bytes>(status.st_blocks) * 512;
  }
  const Bytes planned = SwapStore::disk_bytes(blocks, Durability::step);
  EXPECT_LE(used, planned + 16384);  // the file system's own blocks
  EXPECT_GE(used, planned);
}

TEST_P(SwapStoreTest, file_descriptors_are_constant_over_many_open_and_close_cycles) {
  const auto count = [] {
    std::size_t found = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++found;
    return found;
  };
  commit_step(*create({4096}), 1);
  open();
  const std::size_t before = count();
  for (int cycle = 0; cycle < 200; ++cycle) EXPECT_EQ(open()->commits().size(), 1u);
  EXPECT_EQ(count(), before);
}

TEST_P(SwapStoreTest, remove_on_close_leaves_nothing_of_what_create_made) {
  auto store = create(odd_sizes);
  commit_step(*store, 1);
  store->remove_on_close();
  store.reset();
  EXPECT_TRUE(folder_.names().empty());
}

TEST_P(SwapStoreTest, a_forked_child_that_destroys_its_copy_of_the_store_deletes_and_releases_nothing) {
  auto store = create({4096});
  commit_step(*store, 1);
  store->remove_on_close();
  const pid_t child = ::fork();
  if (child == 0) {
    store.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THROW(open(), UsageError);
  store->release_superseded();
  commit_step(*store, 2);
  EXPECT_TRUE(holds_step(*store, 2));
}

TEST_P(SwapStoreTest, a_store_opened_read_only_reads_both_steps_and_refuses_to_write) {
  const auto owner = create(odd_sizes);
  commit_step(*owner, 1);
  owner->release_superseded();
  commit_step(*owner, 2);
  const auto store = SwapStore::open_read_only(options().directory, engine());  // beside the live owner
  EXPECT_TRUE(holds_step(*store, 2));
  store->position_at(1);
  EXPECT_TRUE(holds_step(*store, 1));
  Buffer buffer(1 << 20);
  EXPECT_THROW((void)store->write(0, buffer.lease()), std::logic_error);
  EXPECT_THROW(store->commit({3, ""}), std::logic_error);
  EXPECT_THROW(store->release_superseded(), std::logic_error);
  EXPECT_EQ(steps_of(*owner), (std::vector<std::uint64_t>{1, 2}));
}

TEST_P(SwapStoreTest, describe_says_what_is_inside_without_opening_it) {
  const auto store = create({4097, 0});
  commit_step(*store, 7);
  const SwapDescription description = SwapStore::describe(options().directory);
  EXPECT_EQ(description.layout, options().layout);
  ASSERT_EQ(description.blocks.size(), 2u);
  EXPECT_EQ(description.blocks[0].name, "block0");
  EXPECT_EQ(description.blocks[0].bytes, 4097u);
  EXPECT_EQ(description.extents_bytes, 2u * 8192);
  EXPECT_EQ(description.commits.back().step, 7u);
  EXPECT_EQ(description.owner.state, SwapOwner::State::alive);
  EXPECT_EQ(description.owner.pid, static_cast<std::uint64_t>(::getpid()));
}

}  // namespace
}  // namespace headrace::testing
