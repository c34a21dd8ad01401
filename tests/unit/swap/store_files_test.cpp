// What a store takes, keeps open and leaves behind: its files, descriptors, copies in a child, other readers.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

class SwapFilesTest : public OnBothEngines {};
INSTANTIATE_TEST_SUITE_P(Engines, SwapFilesTest, both_engines, engine_test_name);

TEST_P(SwapFilesTest, durability_none_updates_in_place_keeps_no_journal_and_cannot_roll_back) {
  const auto store = create(odd_sizes, Durability::none);
  commit_step(*store, 1);
  const std::uint64_t offset = store->extents(3)[0].offset;
  write_step(*store, 2);
  EXPECT_EQ(store->extents(3)[0].offset, offset);
  EXPECT_THAT(message_of<Error>([&] { store->rollback(); }), HasSubstr("in place"));
  store->commit({2, ""});
  store->release_superseded();
  store->rollback();  // nothing to drop
  EXPECT_TRUE(holds_step(*store, 2));
  EXPECT_EQ(folder_.names("rank-00000"), (std::vector<std::string>{"extents.bin", "lock", "store.json"}));
  flip_bit(store->extents(3)[0].path, offset);
  EXPECT_THROW(block_holds(*store, 3, 0), CorruptData);
}

TEST_P(SwapFilesTest, durability_none_takes_one_generation_of_disk_and_is_not_resumed) {
  const Bytes one = SwapStore::disk_bytes(blocks_of({1 << 20}), {{"x"}, Durability::none})[0];
  EXPECT_EQ(one, Bytes{1} << 20);
  EXPECT_GE(SwapStore::disk_bytes(blocks_of({1 << 20}), {{"x"}, Durability::step})[0], 2 * one);
  create({4096}, Durability::none);
  EXPECT_THAT(message_of<UsageError>([&] { open(); }), HasSubstr("durability \"none\""));
}

TEST_P(SwapFilesTest, disk_bytes_is_what_create_takes) {
  const auto blocks = blocks_of({1 << 20, 4097, 3});
  const auto store = SwapStore::create(options(), blocks, engine());
  struct stat status {};
  Bytes used = 0;
  for (const char* name : {"extents.bin", "journal.bin"}) {
    ASSERT_EQ(::stat((options().directories[0] + "/" + name).c_str(), &status), 0);
    used += static_cast<Bytes>(status.st_blocks) * 512;
  }
  const Bytes planned = SwapStore::disk_bytes(blocks, {{"x"}, Durability::step})[0];
  EXPECT_LE(used, planned + 16384);  // the file system's own blocks
  EXPECT_GE(used, planned);
}

TEST_P(SwapFilesTest, file_descriptors_are_constant_over_many_open_and_close_cycles) {
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

TEST_P(SwapFilesTest, remove_on_close_leaves_nothing_of_what_create_made) {
  auto store = create(odd_sizes);
  commit_step(*store, 1);
  store->remove_on_close();
  store.reset();
  EXPECT_TRUE(folder_.names().empty());
}

TEST_P(SwapFilesTest, a_forked_child_that_destroys_its_copy_of_the_store_deletes_and_releases_nothing) {
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

TEST_P(SwapFilesTest, a_store_opened_read_only_reads_both_steps_and_refuses_to_write) {
  const auto owner = create(odd_sizes);
  commit_step(*owner, 1);
  owner->release_superseded();
  commit_step(*owner, 2);
  const auto store =
      SwapStore::open_read_only({options().directories[0]}, engine());  // beside the live owner
  EXPECT_TRUE(holds_step(*store, 2));
  store->position_at(1);
  EXPECT_TRUE(holds_step(*store, 1));
  Buffer buffer(1 << 20);
  EXPECT_THROW((void)store->write(0, buffer.lease()), std::logic_error);
  EXPECT_THROW(store->commit({3, ""}), std::logic_error);
  EXPECT_THROW(store->release_superseded(), std::logic_error);
  EXPECT_EQ(steps_of(*owner), (std::vector<std::uint64_t>{1, 2}));
}

TEST_P(SwapFilesTest, describe_says_what_is_inside_without_opening_it) {
  const auto store = create({4097, 0});
  commit_step(*store, 7);
  const SwapDescription description = SwapStore::describe({options().directories[0]});
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
