// Failing writes, flushes and renames: the step is not committed, the one before stays, and the run may go
// on.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/support/power_loss/syscall_hook.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

// Passes transfers on, and fails those of one direction after `skip` of them.
class FailingEngine final : public IoEngine {
 public:
  FailingEngine(IoDirection direction, int code, int skip)
      : inner_(make_thread_engine({})), direction_(direction), code_(code), skip_(skip) {}
  std::string_view name() const override { return "failing"; }
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    if (direction != direction_ || skip_-- > 0)
      return inner_->submit(direction, file, offset, std::move(buffer), bytes);
    return IoTicket(std::make_unique<Failed>(code_, std::move(buffer)));
  }
  IoCounters counters() const override { return inner_->counters(); }
  void repair() { skip_ = 1 << 30; }
  void fail_after(int skip) { skip_ = skip; }

 private:
  class Failed final : public IoTicket::State {
   public:
    Failed(int code, HostLease buffer) : code_(code), buffer_(std::move(buffer)) {}
    IoResult wait() override { return {0, code_}; }
    bool done() override { return true; }
    HostLease take() override { return std::move(buffer_); }

   private:
    int code_;
    HostLease buffer_;
  };
  std::unique_ptr<IoEngine> inner_;
  IoDirection direction_;
  int code_, skip_;
};

class SwapFaultTest : public ::testing::Test {
 protected:
  std::unique_ptr<SwapStore> create(IoEngine& engine, const std::vector<Bytes>& sizes = odd_sizes) {
    return SwapStore::create(options_, blocks_of(sizes), engine);
  }
  std::unique_ptr<SwapStore> open() { return SwapStore::open(options_, *engine_); }
  // A store with step 1 committed and step 2 written.
  std::unique_ptr<SwapStore> in_step_2(IoEngine& engine) {
    auto store = create(engine);
    commit_step(*store, 1);
    store->release_superseded();
    write_step(*store, 2);
    return store;
  }
  // The step fails with `code`; rolled back and done again it is committed; a later open finds it.
  void expect_refused_then_recovered(SwapStore& store, int code) {
    try {
      store.commit({2, "metadata of step 2"});
      FAIL() << "committed";
    } catch (const IoError& error) {
      EXPECT_EQ(error.code(), code);
    }
    EXPECT_EQ(steps_of(store), (std::vector<std::uint64_t>{1}));
    store.rollback();
    EXPECT_TRUE(holds_step(store, 1));
    commit_step(store, 2);
    EXPECT_TRUE(holds_step(store, 2));
  }

  TemporaryFolder folder_{memory_folder()};
  SwapStoreOptions options_{{folder_.path("rank-00000")}, Durability::step, "{}"};
  std::unique_ptr<IoEngine> engine_ = make_thread_engine({});
};

TEST_F(SwapFaultTest, a_failed_write_fails_its_ticket_and_the_commit_and_leaves_the_step_before) {
  for (const int code : {EIO, ENOSPC})
    for (int failing_write = 0; failing_write < 5; ++failing_write) {
      FailingEngine engine(IoDirection::write, code, 1 << 30);
      {
        const auto store = create(engine);
        commit_step(*store, 1);
        store->release_superseded();
        engine.fail_after(failing_write);
        std::vector<std::unique_ptr<Buffer>> buffers;
        for (std::uint32_t block = 0; block < store->blocks().size(); ++block) {
          buffers.push_back(std::make_unique<Buffer>(store->buffer_bytes(block)));
          store->write(block, buffers.back()->lease());  // the tickets are dropped: nothing throws here
        }
        try {
          store->commit({2, ""});
          FAIL() << "committed";
        } catch (const IoError& error) {
          EXPECT_EQ(error.code(), code);
          EXPECT_THAT(error.what(), HasSubstr("swap block \"block"));
          EXPECT_THAT(error.what(), HasSubstr("extents.bin"));
        }
        engine.repair();
        store->rollback();
        EXPECT_TRUE(holds_step(*store, 1));
      }
      EXPECT_TRUE(holds_step(*open(), 1));
    }
}

TEST_F(SwapFaultTest, a_failed_write_can_be_repeated_in_the_same_step) {
  FailingEngine engine(IoDirection::write, ENOSPC, 0);
  const auto store = create(engine, {4096});
  EXPECT_THROW(write_block(*store, 0, 3), IoError);
  EXPECT_THROW(store->commit({1, ""}), IoError);
  engine.repair();
  write_block(*store, 0, 4);
  store->commit({1, ""});
  EXPECT_TRUE(block_holds(*store, 0, 4));
}

TEST_F(SwapFaultTest, a_failed_read_names_the_block_and_gives_its_buffer_back) {
  FailingEngine engine(IoDirection::read, EIO, 0);
  const auto store = create(engine, {4096});
  commit_step(*store, 1);
  Buffer buffer(4096);
  SwapTicket ticket = store->read(0, buffer.lease());
  EXPECT_THAT(message_of<IoError>([&] { ticket.wait(); }), HasSubstr("\"block0\""));
  EXPECT_THROW(ticket.wait(), IoError);
  EXPECT_EQ(ticket.take().data(), buffer.memory().data());
}

TEST_F(SwapFaultTest, a_failed_flush_of_the_data_fails_the_commit_until_the_step_is_rolled_back) {
  const auto store = in_step_2(*engine_);
  const SyscallHook hook(folder_.path(), failing(FileCall::sync, "extents.bin", EIO));
  EXPECT_THROW(store->commit({2, ""}), IoError);
  EXPECT_THAT(message_of<Error>([&] { store->commit({2, ""}); }), HasSubstr("roll the step back"));
  store->rollback();
  commit_step(*store, 2);
  EXPECT_TRUE(holds_step(*store, 2));
}

TEST_F(SwapFaultTest, a_journal_record_that_cannot_be_written_fails_the_commit) {
  const auto store = in_step_2(*engine_);
  const SyscallHook hook(folder_.path(), failing(FileCall::write, "journal.bin", ENOSPC));
  expect_refused_then_recovered(*store, ENOSPC);
}

TEST_F(SwapFaultTest, a_journal_record_that_cannot_be_flushed_fails_the_commit_and_is_not_found_later) {
  {
    const auto store = in_step_2(*engine_);
    const SyscallHook hook(folder_.path(), failing(FileCall::sync, "journal.bin", EIO));
    EXPECT_THROW(store->commit({2, ""}), IoError);
    EXPECT_EQ(steps_of(*SwapStore::open_read_only({options_.directories[0]}, *engine_)),
              (std::vector<std::uint64_t>{1}));
    store->rollback();
    write_step(*store, 7);
  }
  EXPECT_TRUE(holds_step(*open(), 1));
}

TEST_F(SwapFaultTest, a_journal_that_cannot_be_restored_takes_no_more_writes) {
  {
    const auto store = in_step_2(*engine_);
    const SyscallHook hook(folder_.path(), failing(FileCall::sync, "journal.bin", EIO, 0, 100));
    EXPECT_THROW(store->commit({2, "metadata of step 2"}), IoError);
    EXPECT_THAT(message_of<Error>([&] { store->commit({2, ""}); }), HasSubstr("journal.bin"));
    EXPECT_THROW(store->rollback(), Error);
    Buffer buffer(8192);
    EXPECT_THROW((void)store->write(0, buffer.lease()), Error);
    EXPECT_TRUE(block_holds(*store, 0, seed_of(2, 0)));  // reading goes on
  }
  const auto store = open();
  EXPECT_TRUE(holds_step(*store, store->commits().back().step));
}

TEST_F(SwapFaultTest, going_back_a_step_that_cannot_be_made_durable_is_an_error_and_the_store_stops) {
  const auto store = in_step_2(*engine_);
  store->commit({2, ""});
  const SyscallHook hook(folder_.path(), failing(FileCall::truncate, "journal.bin", EIO));
  EXPECT_THROW(store->position_at(1), IoError);
  EXPECT_THROW(store->release_superseded(), Error);
}

// Metadata large enough that the 17th record makes the journal compact.
void commit_until_compaction(SwapStore& store) {
  for (std::uint64_t step = 1; step <= 16; ++step) {
    write_step(store, step);
    store.commit({step, std::string(5000, 'x')});
    store.release_superseded();
  }
}

TEST_F(SwapFaultTest, the_journal_is_compacted_to_the_last_commits_and_stays_bounded) {
  {
    const auto store = create(*engine_);
    Bytes largest = 0;
    for (std::uint64_t step = 1; step <= 60; ++step) {
      write_step(*store, step);
      store->commit({step, std::string(5000, 'x')});
      largest = std::max<Bytes>(largest, std::filesystem::file_size(folder_.path("rank-00000/journal.bin")));
      if (step % 2 == 0) {
        EXPECT_EQ(store->commits().size(), 2u);
      }
      store->release_superseded();
    }
    EXPECT_LT(largest, 100u << 10);
    write_step(*store, 61);
    store->commit({61, "last"});
  }
  const auto store = open();
  EXPECT_EQ(steps_of(*store), (std::vector<std::uint64_t>{60, 61}));
  store->position_at(60);
  EXPECT_TRUE(holds_step(*store, 60));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("rank-00000/journal.bin.new")));
}

TEST_F(SwapFaultTest, a_compaction_without_room_lets_the_journal_grow_and_commits) {
  const auto store = create(*engine_);
  commit_until_compaction(*store);
  {
    const SyscallHook hook(folder_.path(), failing(FileCall::write, "journal.bin.new", ENOSPC, 0, 100));
    write_step(*store, 17);
    store->commit({17, std::string(5000, 'y')});
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path("rank-00000/journal.bin.new")));
  EXPECT_EQ(SwapStore::describe({options_.directories[0]}).commits.back().metadata, std::string(5000, 'y'));
  store->release_superseded();
  commit_step(*store, 18);
  EXPECT_LT(std::filesystem::file_size(folder_.path("rank-00000/journal.bin")), 30u << 10);
}

TEST_F(SwapFaultTest, a_compaction_that_may_not_be_durable_fails_the_commit_and_stops_the_store) {
  {
    const auto store = create(*engine_);
    commit_until_compaction(*store);
    write_step(*store, 17);
    const SyscallHook hook(folder_.path(), failing(FileCall::sync, "rank-00000", EIO));
    EXPECT_THROW(store->commit({17, std::string(5000, 'y')}), IoError);
    EXPECT_THROW(store->commit({17, std::string(5000, 'y')}), Error);
  }
  EXPECT_TRUE(holds_step(*open(), 16));
}

TEST_F(SwapFaultTest, create_that_fails_at_any_call_leaves_nothing_behind) {
  for (int call = 0;; ++call) {
    int seen = 0;
    bool failed = false;
    {
      const SyscallHook hook(folder_.path(), [&](const FileEvent& event) {
        if (event.call == FileCall::remove || event.path.ends_with("lock")) return 0;
        failed = failed || seen == call;
        return seen++ == call ? EIO : 0;
      });
      try {
        create(*engine_);
      } catch (const Error&) {
      }
    }
    if (!failed) {
      EXPECT_GE(call, 8);
      break;
    }
    EXPECT_TRUE(folder_.names().empty()) << "after call " << call;
  }
}

}  // namespace
}  // namespace headrace::testing
