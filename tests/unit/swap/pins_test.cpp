// Pinned versions: SwapStore::pin(), unpin() and what reads them.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/unit/swap/killed_child.h"

namespace headrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SwapPinsTest : public KilledChildTest {
 protected:
  struct Shape {
    std::uint32_t paths, parity;
  };
  static constexpr Shape shapes[] = {{1, 0}, {3, 0}, {3, 1}, {4, 2}};

  SwapStoreOptions with_pins(std::uint32_t pins, Shape shape = {1, 0}) const {
    SwapStoreOptions wanted = options(shape.paths, shape.parity);
    wanted.pins = pins;
    return wanted;
  }
  void start_empty() {
    for (const std::string& name : folder_.names()) fs::remove_all(folder_.path(name));
  }
  static std::vector<std::string> names_of(const std::vector<SwapPin>& pins) {
    std::vector<std::string> names;
    for (const SwapPin& pin : pins) names.push_back(pin.name);
    return names;
  }
  std::unique_ptr<SwapStore> read_pin(const SwapStoreOptions& options, const std::string& name) {
    auto store = SwapStore::open_read_only(options.directories, *engine_);
    store->position_at_pin(name);
    return store;
  }
  bool pin_holds(const SwapStoreOptions& options, const std::string& name, std::uint64_t step) {
    const auto store = read_pin(options, name);
    return steps_of(*store) == std::vector{step} && holds_step(*store, step);
  }
};

TEST_F(SwapPinsTest, a_pinned_step_stays_whole_whatever_is_committed_after_it) {
  for (const Shape shape : shapes) {
    SCOPED_TRACE(fmt::format("{} paths, parity {}", shape.paths, shape.parity));
    start_empty();
    const SwapStoreOptions wanted = with_pins(2, shape);
    const auto store = create(wanted);
    EXPECT_EQ(store->most_pins(), 2u);
    commit_and_release(*store, 1);
    store->pin("first");
    commit_and_release(*store, 2);
    commit_and_release(*store, 3);
    store->pin("second");
    for (std::uint64_t step = 4; step < 9; ++step) commit_and_release(*store, step);
    EXPECT_THAT(names_of(store->pins()), ElementsAre("first", "second"));
    EXPECT_EQ(store->pins()[1].commit.metadata, "metadata of step 3");
    EXPECT_TRUE(pin_holds(wanted, "first", 1));
    EXPECT_TRUE(pin_holds(wanted, "second", 3));
    EXPECT_TRUE(holds_step(*store, 8));
  }
}

TEST_F(SwapPinsTest, a_pin_takes_no_copy_and_an_unpinned_extent_is_used_again) {
  const auto store = create(with_pins(1), {4096});
  const auto offset = [&] { return store->extents(0)[0].offset; };
  commit_and_release(*store, 1);
  const std::uint64_t pinned = offset();
  store->pin("a");
  for (std::uint64_t step = 2; step < 8; ++step) {
    commit_and_release(*store, step);
    EXPECT_NE(offset(), pinned);
  }
  store->unpin("a");
  store->unpin("a");  // there is none
  bool used_again = false;
  for (std::uint64_t step = 8; step < 11; ++step) {
    commit_and_release(*store, step);
    used_again = used_again || offset() == pinned;
  }
  EXPECT_TRUE(used_again);
  EXPECT_EQ(fs::file_size(path(0) + "/extents.bin"), 3u * 4096);
}

TEST_F(SwapPinsTest, pins_survive_reopening_and_a_store_keeps_the_number_that_it_was_made_for) {
  for (const Shape shape : shapes) {
    start_empty();
    {
      const auto store = create(with_pins(2, shape));
      commit_and_release(*store, 1);
      store->pin("a");
      commit_and_release(*store, 2);
    }
    const auto store = open(with_pins(7, shape));
    EXPECT_EQ(store->most_pins(), 2u);
    EXPECT_THAT(names_of(store->pins()), ElementsAre("a"));
    for (std::uint64_t step = 3; step < 6; ++step) commit_and_release(*store, step);
    EXPECT_TRUE(pin_holds(with_pins(2, shape), "a", 1));
    EXPECT_THAT(names_of(SwapStore::describe(with_pins(2, shape).directories).pins), ElementsAre("a"));
  }
}

TEST_F(SwapPinsTest, going_back_and_rolling_back_leave_pins_alone) {
  const auto store = create(with_pins(2));
  commit_and_release(*store, 1);
  store->pin("a");
  write_step(*store, 2);
  store->commit({2, ""});
  store->pin("b");
  store->position_at(1);
  for (std::uint64_t step = 2; step < 5; ++step) {
    write_step(*store, 70 + step);
    store->rollback();
    write_step(*store, 70 + step);
    store->commit({step, ""});
    store->release_superseded();
  }
  EXPECT_TRUE(pin_holds(with_pins(2), "a", 1));
  EXPECT_TRUE(pin_holds(with_pins(2), "b", 2));
  EXPECT_TRUE(holds_step(*store, 74));
}

TEST_F(SwapPinsTest, a_store_goes_back_to_a_pin_and_on_from_there_and_keeps_the_pin) {
  for (const Shape shape : shapes) {
    start_empty();
    const SwapStoreOptions wanted = with_pins(1, shape);
    {
      const auto store = create(wanted);
      commit_and_release(*store, 1);
      store->pin("a");
      for (std::uint64_t step = 2; step < 6; ++step) commit_and_release(*store, step);
    }
    {
      const auto store = open(wanted);
      store->go_back_to_pin("a");
      EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{5, 1}));
      EXPECT_TRUE(holds_step(*store, 1));
    }
    const auto store = open(wanted);
    EXPECT_EQ(steps_of(*store).back(), 1u);
    store->release_superseded();
    for (std::uint64_t step = 2; step < 5; ++step) commit_and_release(*store, step);
    EXPECT_TRUE(holds_step(*store, 4));
    EXPECT_TRUE(pin_holds(wanted, "a", 1));
    EXPECT_THAT(message_of<UsageError>([&] { store->go_back_to_pin("b"); }), HasSubstr("it has a"));
  }
}

TEST_F(SwapPinsTest, a_store_does_not_go_back_to_a_pin_that_is_damaged) {
  const auto store = create(with_pins(1));
  commit_and_release(*store, 1);
  store->pin("a");
  const SwapStore::Extent extent = store->extents(3)[0];
  commit_and_release(*store, 2);
  flip_bit(extent.path, extent.offset);
  EXPECT_THROW(store->go_back_to_pin("a"), CorruptData);
  EXPECT_TRUE(holds_step(*store, 2));
  commit_and_release(*store, 3);
  EXPECT_TRUE(holds_step(*store, 3));
}

TEST_F(SwapPinsTest, what_cannot_be_pinned_is_refused_with_what_to_do) {
  const auto store = create(with_pins(1));
  EXPECT_THROW(store->pin("a"), std::logic_error);  // nothing is committed
  commit_and_release(*store, 1);
  for (const char* name : {"", "a/b", "..\n", "a b"})
    EXPECT_THAT(message_of<UsageError>([&] { store->pin(name); }), HasSubstr("letters, digits"));
  store->pin("step-00000001");
  EXPECT_THAT(message_of<UsageError>([&] { store->pin("step-00000001"); }), HasSubstr("another name"));
  EXPECT_THAT(message_of<UsageError>([&] { store->pin("b"); }),
              AllOf(HasSubstr("made for 1"), HasSubstr("step-00000001"), HasSubstr("Release one")));
  store->unpin("step-00000001");
  write_block(*store, 0, 5);
  EXPECT_THROW(store->pin("b"), std::logic_error);  // in the middle of a step
  store->rollback();
  store->pin("b");
  EXPECT_THAT(message_of<UsageError>([&] { read_pin(with_pins(1), "c"); }),
              AllOf(HasSubstr("no pinned version c"), HasSubstr("it has b")));
  SwapStoreOptions none = with_pins(1);
  none.durability = Durability::none;
  EXPECT_THROW((void)SwapStore::disk_bytes(blocks_of({1}), none), UsageError);
}

TEST_F(SwapPinsTest, a_store_without_room_for_pins_has_the_format_it_had_before_there_were_any) {
  const auto description = [&] {
    std::ifstream file(path(0) + "/store.json");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  create(options(1));
  EXPECT_THAT(description(), AllOf(HasSubstr("\"format\":2"), ::testing::Not(HasSubstr("copies"))));
  create(with_pins(3));
  EXPECT_THAT(description(), AllOf(HasSubstr("\"format\":3"), HasSubstr("\"copies\":5")));
}

TEST_F(SwapPinsTest, room_for_pins_is_reserved_when_the_store_is_made) {
  const auto blocks = blocks_of({1 << 20, 4097});
  const Bytes without = SwapStore::disk_bytes(blocks, with_pins(0))[0];
  const Bytes with = SwapStore::disk_bytes(blocks, with_pins(2))[0];
  EXPECT_GE(with, without + 2 * ((1 << 20) + 8192));
  EXPECT_LE(with, without + 2 * ((1 << 20) + 8192 + 8192));
  const auto store = create(with_pins(2), {1 << 20, 4097});
  EXPECT_GE(SwapStore::describe({path(0)}).disk_bytes, with - 3 * 8192);
}

TEST_F(SwapPinsTest, pins_go_with_their_store) {
  const auto make_pinned = [&] {
    auto store = create(with_pins(1));
    commit_and_release(*store, 1);
    store->pin("a");
    return store;
  };
  make_pinned()->remove_on_close();
  EXPECT_THAT(folder_.names(), IsEmpty());
  make_pinned();
  SwapStore::remove({path(0)});
  EXPECT_THAT(folder_.names(), IsEmpty());
  make_pinned();
  const auto another = create(with_pins(1));
  EXPECT_THAT(another->pins(), IsEmpty());
  EXPECT_FALSE(fs::exists(path(0) + "/pin-a.bin"));
}

TEST_F(SwapPinsTest, files_of_another_store_and_part_written_ones_are_no_pins_and_removed) {
  const SwapStoreOptions wanted = with_pins(2);
  {
    const auto store = create(wanted);
    commit_and_release(*store, 1);
    store->pin("old");
  }
  fs::rename(path(0) + "/pin-old.bin", folder_.path("kept"));
  { commit_and_release(*create(wanted), 1); }
  fs::rename(folder_.path("kept"), path(0) + "/pin-old.bin");
  std::ofstream(path(0) + "/pin-half.bin.new") << "x";
  EXPECT_THAT(SwapStore::describe({path(0)}).pins, IsEmpty());
  EXPECT_THAT(open(wanted)->pins(), IsEmpty());
  EXPECT_EQ(folder_.names("p0"),
            (std::vector<std::string>{"extents.bin", "journal.bin", "lock", "store.json"}));
}

TEST_F(SwapPinsTest,
       a_damaged_or_missing_file_of_a_pin_is_mended_from_another_path_and_given_up_without_one) {
  for (const Shape shape : {Shape{3, 0}, Shape{3, 1}}) {
    start_empty();
    const SwapStoreOptions wanted = with_pins(1, shape);
    {
      const auto store = create(wanted);
      commit_and_release(*store, 1);
      store->pin("a");
      commit_and_release(*store, 2);
    }
    flip_bit(path(0) + "/pin-a.bin", 1600);
    fs::remove(path(1) + "/pin-a.bin");
    {
      const auto store = open(wanted);
      for (std::uint64_t step = 3; step < 6; ++step) commit_and_release(*store, step);
    }
    EXPECT_TRUE(pin_holds(wanted, "a", 1));
    flip_bit(path(1) + "/pin-a.bin", 20);
    fs::remove(path(2) + "/pin-a.bin");
    EXPECT_TRUE(pin_holds(wanted, "a", 1)) << "by the file that was mended";
    flip_bit(path(0) + "/pin-a.bin", 1600);
    const auto store = open(wanted);
    EXPECT_THAT(store->pins(), IsEmpty());
    for (std::uint64_t step = 6; step < 9; ++step) commit_and_release(*store, step);
    EXPECT_TRUE(holds_step(*store, 8));
    EXPECT_FALSE(fs::exists(path(1) + "/pin-a.bin"));
  }
}

TEST_F(SwapPinsTest, damage_in_a_pinned_version_is_found_and_rebuilt_by_parity) {
  const SwapStoreOptions wanted = with_pins(1, {3, 1});
  {
    const auto store = create(wanted);
    commit_and_release(*store, 1);
    store->pin("a");
    for (std::uint64_t step = 2; step < 5; ++step) commit_and_release(*store, step);
  }
  const auto extents = read_pin(wanted, "a")->extents(3);
  flip_bit(extents[0].path, extents[0].offset);
  EXPECT_EQ(read_pin(wanted, "a")->damage(3).size(), 1u);
  EXPECT_TRUE(pin_holds(wanted, "a", 1));
  EXPECT_THAT(SwapStore::repair(wanted.directories, *engine_).problems, IsEmpty());
  EXPECT_THAT(read_pin(wanted, "a")->damage(3), IsEmpty());
  for (const int piece : {0, 1}) flip_bit(extents[piece].path, extents[piece].offset);
  EXPECT_THROW((void)pin_holds(wanted, "a", 1), CorruptData);
  EXPECT_THAT(SwapStore::repair(wanted.directories, *engine_).problems,
              ElementsAre(AllOf(HasSubstr("pinned version a (step 1)"), HasSubstr("1 of 6 blocks"),
                                HasSubstr("block3"))));
  EXPECT_TRUE(holds_step(*open(wanted), 4));
}

TEST_F(SwapPinsTest, a_path_that_is_gone_is_rebuilt_with_its_pins) {
  const SwapStoreOptions wanted = with_pins(2, {5, 2});
  {
    const auto store = create(wanted);
    commit_and_release(*store, 1);
    store->pin("a");
    for (std::uint64_t step = 2; step < 5; ++step) commit_and_release(*store, step);
    store->pin("b");
    commit_and_release(*store, 5);
  }
  fs::remove_all(path(0));
  fs::remove_all(path(3));
  EXPECT_TRUE(pin_holds(wanted, "a", 1));
  EXPECT_THAT(SwapStore::repair(wanted.directories, *engine_).problems, IsEmpty());
  fs::remove_all(path(1));
  fs::remove_all(path(2));
  const auto store = open(wanted);
  EXPECT_THAT(names_of(store->pins()), ElementsAre("a", "b"));
  for (std::uint64_t step = 6; step < 9; ++step) commit_and_release(*store, step);
  EXPECT_TRUE(pin_holds(wanted, "a", 1));
  EXPECT_TRUE(pin_holds(wanted, "b", 4));
}

TEST_F(SwapPinsTest, a_path_that_missed_a_removal_does_not_bring_the_pin_back) {
  const SwapStoreOptions wanted = with_pins(1, {3, 1});
  {
    const auto store = create(wanted);
    commit_and_release(*store, 1);
    store->pin("a");
  }
  fs::rename(path(0), folder_.path("away"));
  {
    const auto store = open(wanted);
    store->unpin("a");
    for (std::uint64_t step = 2; step < 5; ++step) commit_and_release(*store, step);
  }
  fs::rename(folder_.path("away"), path(0));
  EXPECT_THAT(SwapStore::open_read_only(wanted.directories, *engine_)->pins(), IsEmpty());
  EXPECT_THAT(SwapStore::repair(wanted.directories, *engine_).problems, IsEmpty());
  EXPECT_THAT(open(wanted)->pins(), IsEmpty());
  EXPECT_FALSE(fs::exists(path(0) + "/pin-a.bin"));
}

TEST_F(SwapPinsTest, a_pin_that_fails_is_taken_back_and_the_store_goes_on) {
  const std::pair<FileCall, std::string> faults[] = {{FileCall::write, "p1/pin-a.bin.new"},
                                                     {FileCall::sync, "p1/pin-a.bin.new"}};
  for (const auto& [call, suffix] : faults) {
    SCOPED_TRACE(suffix);
    start_empty();
    const SwapStoreOptions wanted = with_pins(1, {2, 0});
    {
      const auto store = create(wanted);
      commit_and_release(*store, 1);
      {
        const SyscallHook hook(folder_.path(), failing(call, suffix, ENOSPC));
        EXPECT_THROW(store->pin("a"), IoError);
      }
      EXPECT_THAT(store->pins(), IsEmpty());
      for (std::uint64_t step = 2; step < 5; ++step) commit_and_release(*store, step);
      store->pin("a");
    }
    EXPECT_TRUE(pin_holds(wanted, "a", 4));
  }
}

// Whether the pin is there after the loss of power, nobody can tell.
TEST_F(SwapPinsTest, a_folder_that_could_not_be_flushed_while_pins_change_ends_the_store) {
  const std::pair<FileCall, std::string> faults[] = {
      {FileCall::rename, "p1/pin-b.bin.new"}, {FileCall::sync, "p0"}, {FileCall::sync, "p1"}};
  for (const bool unpins : {false, true})
    for (const auto& [call, suffix] : faults) {
      if (unpins && call == FileCall::rename) continue;
      SCOPED_TRACE(fmt::format("{} {}", unpins ? "unpin" : "pin", suffix));
      start_empty();
      const SwapStoreOptions wanted = with_pins(2, {2, 0});
      {
        const auto store = create(wanted);
        commit_and_release(*store, 1);
        store->pin("a");
        {
          const SyscallHook hook(folder_.path(), failing(call, suffix, EIO));
          if (unpins)
            EXPECT_THROW(store->unpin("a"), IoError);
          else
            EXPECT_THROW(store->pin("b"), IoError);
        }
        EXPECT_THAT(message_of<Error>([&] { commit_and_release(*store, 2); }),
                    HasSubstr("resume from the last commit"));
      }
      const auto store = open(wanted);
      EXPECT_EQ(store->commits().back().step, 1u);
      store->unpin("b");
      for (std::uint64_t step = 2; step < 5; ++step) commit_and_release(*store, step);
      store->pin("c");
    }
}

TEST_F(SwapPinsTest, a_pin_that_cannot_be_taken_back_keeps_its_extents_until_it_is) {
  const SwapStoreOptions wanted = with_pins(1, {2, 0});
  const auto store = create(wanted);
  commit_and_release(*store, 1);
  {
    const SyscallHook hook(folder_.path(), [](const FileEvent& event) {
      return event.path.ends_with("p1/pin-a.bin.new") || event.call == FileCall::remove ? EIO : 0;
    });
    EXPECT_THROW(store->pin("a"), IoError);
  }
  EXPECT_THAT(names_of(store->pins()), ElementsAre("a"));
  for (std::uint64_t step = 2; step < 5; ++step) commit_and_release(*store, step);
  EXPECT_TRUE(pin_holds(wanted, "a", 1)) << "a later open would find it";
  store->unpin("a");
  EXPECT_FALSE(fs::exists(path(0) + "/pin-a.bin"));
}

TEST_F(SwapPinsTest, a_store_whose_files_are_gone_is_not_pinned) {
  const auto store = create(with_pins(1));
  commit_and_release(*store, 1);
  fs::rename(path(0), folder_.path("away"));
  fs::create_directory(path(0));
  EXPECT_THAT(message_of<IoError>([&] { store->pin("a"); }), HasSubstr("not pinned"));
  EXPECT_FALSE(fs::exists(path(0) + "/pin-a.bin"));
}

TEST_F(SwapPinsTest, kill_9_before_any_call_leaves_each_pin_whole_or_none) {
  for (const Shape shape : {Shape{1, 0}, Shape{3, 0}, Shape{3, 1}}) {
    const SwapStoreOptions wanted = with_pins(2, shape);
    std::set<std::vector<std::string>> found;
    for (int call = 0;; ++call) {
      SCOPED_TRACE(fmt::format("{} paths, parity {}, before call {}", shape.paths, shape.parity, call));
      start_empty();
      {
        const auto store = create(wanted, {100'000, 4097});
        commit_and_release(*store, 1);
        store->pin("first");
      }
      const bool ended = ends_before_call(call, [&](IoEngine& engine) {
        const auto store = SwapStore::open(wanted, engine);
        commit_and_release(*store, 2);
        store->pin("second");
        store->unpin("first");
        commit_and_release(*store, 3);
        commit_and_release(*store, 4);
      });
      if (shape.parity > 0) fs::remove_all(path(static_cast<std::uint32_t>(call) % 3));
      const auto store = open(wanted);
      const auto names = names_of(store->pins());
      found.insert(names);
      for (std::uint64_t step = 10; step < 13; ++step) commit_and_release(*store, step);
      for (const std::string& name : names) ASSERT_TRUE(pin_holds(wanted, name, name == "first" ? 1 : 2));
      ASSERT_TRUE(std::ranges::find(names, "first") != names.end() ||
                  std::ranges::find(names, "second") != names.end());
      if (ended) break;
      ASSERT_LT(call, 300);
    }
    EXPECT_EQ(found.size(), 3u);
  }
}

}  // namespace
}  // namespace headrace::testing
