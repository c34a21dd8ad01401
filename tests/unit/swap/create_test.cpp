// Folders that cannot become a store, disks that are too small, and stores of others: each a clear refusal
// that leaves nothing behind.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "swap/description.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class SwapCreateTest : public OnBothEngines {
 protected:
  std::string refusal(const std::string& directory) {
    return message_of<UsageError>([&] {
      SwapStore::create({{directory}, Durability::step, "{}"}, blocks_of({4096}), engine());
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, SwapCreateTest, both_engines, engine_test_name);

// A small file system of its own, gone with the object.
class TemporaryMount {
 public:
  TemporaryMount(std::string path, unsigned long flags, const std::string& options) : path_(std::move(path)) {
    std::filesystem::create_directory(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", flags, options.c_str()) == 0;
  }
  TemporaryMount(const TemporaryMount&) = delete;
  TemporaryMount& operator=(const TemporaryMount&) = delete;
  ~TemporaryMount() {
    if (mounted_) ::umount(path_.c_str());
  }
  explicit operator bool() const { return mounted_; }
  bool remount(unsigned long flags) {
    return ::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | flags, "") == 0;
  }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST_P(SwapCreateTest, a_missing_parent_a_file_and_a_dangling_link_are_named) {
  EXPECT_THAT(refusal(folder_.path("no/such")),
              AllOf(HasSubstr(folder_.path("no/such")), HasSubstr("parent")));
  std::ofstream(folder_.path("file")) << "mine";
  EXPECT_THAT(refusal(folder_.path("file")), AllOf(HasSubstr(folder_.path("file")), HasSubstr("is a file")));
  EXPECT_THAT(refusal(folder_.path("file/below")), HasSubstr("Not a directory"));
  std::filesystem::create_symlink("nowhere", folder_.path("link"));
  EXPECT_THAT(refusal(folder_.path("link")), HasSubstr("symbolic link"));
  EXPECT_THAT(refusal(""), HasSubstr("--swap-path"));
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"file", "link"}));
}

TEST_P(SwapCreateTest, spaces_and_utf8_in_the_path_are_fine) {
  const SwapStoreOptions named{{folder_.path("Straße mit Ä")}, Durability::step, "{}"};
  commit_step(*SwapStore::create(named, blocks_of({4096}), engine()), 1);
  EXPECT_TRUE(holds_step(*SwapStore::open(named, engine()), 1));
}

TEST_P(SwapCreateTest, a_read_only_mount_is_refused_for_create_and_open_and_still_inspected) {
  TemporaryMount mount(folder_.path("mount"), 0, "size=4m");
  if (!mount) GTEST_SKIP() << "mounting needs root";
  const SwapStoreOptions there{{folder_.path("mount/rank-00000")}, Durability::step, "{}"};
  commit_step(*SwapStore::create(there, blocks_of({4096}), engine()), 1);
  ASSERT_TRUE(mount.remount(MS_RDONLY));
  EXPECT_THAT(refusal(there.directories[0]), HasSubstr("Read-only file system"));
  EXPECT_THAT(refusal(folder_.path("mount/rank-00001")), HasSubstr("Read-only file system"));
  EXPECT_THAT(message_of<UsageError>([&] { SwapStore::open(there, engine()); }),
              HasSubstr("Read-only file system"));
  EXPECT_TRUE(holds_step(*SwapStore::open_read_only({there.directories[0]}, engine()), 1));
}

TEST_P(SwapCreateTest, a_folder_of_another_user_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "changing the user needs root";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  std::filesystem::create_directory(folder_.path("theirs"));
  ASSERT_EQ(::seteuid(65534), 0);
  const std::string existing = refusal(folder_.path("theirs")), fresh = refusal(folder_.path("new"));
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_THAT(existing, HasSubstr("Permission denied"));
  EXPECT_THAT(fresh, HasSubstr("Permission denied"));
}

TEST_P(SwapCreateTest, a_disk_too_small_is_refused_with_needed_and_free_bytes_and_nothing_is_left) {
  TemporaryMount mount(folder_.path("mount"), 0, "size=1m");
  if (!mount) GTEST_SKIP() << "mounting needs root";
  const std::string directory = folder_.path("mount/rank-00000");
  const std::vector<SwapBlock> blocks = blocks_of({600 << 10});
  const std::string message = message_of<DoesNotFit>([&] {
    SwapStore::create({{directory}, Durability::step, "{}"}, blocks, engine());
  });
  EXPECT_THAT(message, HasSubstr(directory));
  EXPECT_THAT(message, HasSubstr(std::to_string(SwapStore::disk_bytes(blocks, {{"x"}, Durability::step})[0]) +
                                 " bytes"));
  EXPECT_THAT(message, ContainsRegex("its file system has .* \\([0-9]+ bytes\\) free"));
  EXPECT_THAT(message, HasSubstr("durability \"none\""));
  EXPECT_TRUE(folder_.names("mount").empty());
  // Half of it fits.
  commit_step(*SwapStore::create({{directory}, Durability::none, "{}"}, blocks, engine()), 1);
}

TEST_P(SwapCreateTest, space_that_cannot_be_reserved_is_refused_and_nothing_is_left) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<DoesNotFit>([&] { create({4 << 20}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_TRUE(folder_.names().empty());
}

TEST_P(SwapCreateTest, files_of_others_in_the_folder_are_left_alone) {
  std::filesystem::create_directory(folder_.path("rank-00000"));
  std::ofstream(folder_.path("rank-00000/notes.txt")) << "mine";
  {
    const auto store = create({4096});
    store->remove_on_close();
  }
  EXPECT_EQ(folder_.names("rank-00000"), (std::vector<std::string>{"notes.txt"}));
}

TEST_P(SwapCreateTest, a_live_store_is_refused_to_create_and_open_and_keeps_working) {
  const auto store = create(odd_sizes);
  commit_step(*store, 1);
  const std::string pid = "process " + std::to_string(::getpid());
  EXPECT_THAT(message_of<UsageError>([&] { create({1}); }), HasSubstr(pid));
  EXPECT_THAT(message_of<UsageError>([&] { open(); }), HasSubstr(pid));
  EXPECT_TRUE(holds_step(*store, 1));
}

TEST_P(SwapCreateTest, the_store_of_a_killed_run_is_reclaimed_and_takes_no_more_disk) {
  const auto blocks_on_disk = [&] {
    Bytes bytes = 0;
    for (const char* name : {"extents.bin", "journal.bin", "store.json"}) {
      struct stat status {};
      ::stat(folder_.path(std::string("rank-00000/") + name).c_str(), &status);
      bytes += static_cast<Bytes>(status.st_blocks) * 512;
    }
    return bytes;
  };
  create({1 << 20});
  const Bytes first = blocks_on_disk();
  std::ofstream(folder_.path("rank-00000/lock")) << "pid 999999999\nstart 1\nhost gone\n";
  std::ofstream(folder_.path("rank-00000/journal.bin.new")) << "half a compaction";
  const auto store = create({1 << 20});
  EXPECT_EQ(blocks_on_disk(), first);
  EXPECT_TRUE(store->commits().empty());
  EXPECT_FALSE(std::filesystem::exists(folder_.path("rank-00000/journal.bin.new")));
}

TEST_P(SwapCreateTest, a_folder_made_by_the_run_before_is_removed_by_the_run_that_reclaims_it) {
  create({4096});
  create({4096})->remove_on_close();
  EXPECT_TRUE(folder_.names().empty());
}

TEST_P(SwapCreateTest, a_stale_store_counts_as_free_space) {
  TemporaryMount mount(folder_.path("mount"), 0, "size=2m");
  if (!mount) GTEST_SKIP() << "mounting needs root";
  const SwapStoreOptions there{{folder_.path("mount/rank-00000")}, Durability::step, "{}"};
  SwapStore::create(there, blocks_of({700 << 10}), engine());
  EXPECT_NO_THROW(SwapStore::create(there, blocks_of({700 << 10}), engine()));
  EXPECT_EQ(SwapStore::describe({there.directories[0]}).blocks.size(), 1u);
}

TEST_P(SwapCreateTest, a_folder_without_a_store_is_not_opened_and_gets_no_files) {
  std::filesystem::create_directory(folder_.path("rank-00000"));
  EXPECT_THAT(message_of<UsageError>([&] { open(); }), HasSubstr("no swap store"));
  EXPECT_THAT(message_of<UsageError>([&] { SwapStore::open_read_only({folder_.path("none")}, engine()); }),
              HasSubstr("no swap store"));
  EXPECT_TRUE(folder_.names("rank-00000").empty());
}

TEST_P(SwapCreateTest, a_store_without_a_commit_is_not_resumed) {
  create({4096});
  EXPECT_THAT(message_of<UsageError>([&] { open(); }), HasSubstr("no committed step"));
}

TEST_P(SwapCreateTest, another_layout_is_refused_with_what_differs) {
  commit_step(*create({4096}), 1);
  SwapStoreOptions other = options();
  other.layout = R"({"world_size":4})";
  const std::string message = message_of<UsageError>([&] { SwapStore::open(other, engine()); });
  EXPECT_THAT(message, HasSubstr("world_size is 2 in the store, 4 here"));
  // What is said first is why, not what follows from it.
  other.layout = R"({"blocks":[1,2,3,4],"units":[5,6,7],"world_size":4})";
  SwapStoreOptions nested = options();
  nested.layout = R"({"blocks":[4,3,2,1],"units":[7,5,6],"world_size":2})";
  EXPECT_THAT(swap::layout_difference(nested.layout, other.layout),
              HasSubstr("world_size is 2 in the store"));
  other.layout = "no json";
  EXPECT_THAT(message_of<UsageError>([&] { SwapStore::open(other, engine()); }), HasSubstr("(7 bytes)"));
  EXPECT_TRUE(holds_step(*open(), 1));
}

TEST_P(SwapCreateTest, a_changed_byte_anywhere_in_the_description_is_noticed) {
  commit_step(*create({4096, 8192}), 1);
  const std::string path = folder_.path("rank-00000/store.json");
  const auto bytes = static_cast<std::uint64_t>(std::filesystem::file_size(path));
  for (std::uint64_t at = 0; at < bytes; ++at) {
    flip_bit(path, at);
    EXPECT_THROW(open(), Error) << at;
    EXPECT_THROW(SwapStore::describe({folder_.path("rank-00000")}), Error) << at;
    flip_bit(path, at);
  }
  EXPECT_TRUE(holds_step(*open(), 1));
}

TEST_P(SwapCreateTest, cut_or_damaged_files_are_refused_by_name) {
  commit_step(*create({4096, 8192}), 1);
  const std::string extents = folder_.path("rank-00000/extents.bin");
  std::filesystem::resize_file(extents, 4096);
  EXPECT_THAT(message_of<CorruptData>([&] { open(); }), AllOf(HasSubstr(extents), HasSubstr("24576")));
  std::filesystem::resize_file(extents, 24576);
  flip_bit(folder_.path("rank-00000/journal.bin"), 3);
  EXPECT_THAT(message_of<CorruptData>([&] { open(); }), HasSubstr("journal.bin"));
  flip_bit(folder_.path("rank-00000/journal.bin"), 3);
  std::ofstream(folder_.path("rank-00000/store.json")) << "{\"format\":1";
  EXPECT_THAT(message_of<CorruptData>([&] { open(); }), HasSubstr("store.json"));
  std::ofstream(folder_.path("rank-00000/store.json")) << "{\"format\":99}";
  EXPECT_THAT(message_of<UsageError>([&] { open(); }), HasSubstr("version 99"));
}

TEST_P(SwapCreateTest, offsets_beyond_4_gib_reach_their_own_bytes) {
  if (std::filesystem::space(folder_.path()).available < (Bytes{24} << 30))
    GTEST_SKIP() << "needs 24 GiB of disk";
  const auto store = create({Bytes{5} << 30, 4096});
  write_block(*store, 1, 42);
  store->commit({1, ""});
  store->release_superseded();
  write_block(*store, 1, 43);
  store->commit({2, ""});
  EXPECT_EQ(store->extents(1)[0].offset, (Bytes{10} << 30) + 4096);
  EXPECT_TRUE(block_holds(*store, 1, 43));
  store->position_at(1);
  EXPECT_EQ(store->extents(1)[0].offset, Bytes{5} << 30);
  EXPECT_TRUE(block_holds(*store, 1, 42));
  store->remove_on_close();
}

}  // namespace
}  // namespace headrace::testing
