// Who reads a store beside its owner: which versions, and what failures of a read do.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/fault_io_engine.h"
#include "tests/unit/swap/paths_fixture.h"

namespace headrace::testing {
namespace {

bool reads_step(SwapStore& store, SwapReader& reader, std::uint32_t block, std::uint64_t step) {
  Buffer buffer(store.buffer_bytes(block));
  reader.read(block, buffer.lease()).wait();
  return holds(buffer.memory().first(store.blocks()[block].bytes), seed_of(step, block));
}

TEST(SwapReader, holds_the_committed_step_through_the_next_one_and_its_commit) {
  const TemporaryFolder folder;
  const auto io = make_thread_engine({});
  const auto store = SwapStore::create({.directories = {folder.path("store")}}, blocks_of(odd_sizes), *io);
  commit_step(*store, 1);
  store->release_superseded();
  const auto reader = store->reader();
  const auto all_of_step_1 = [&] {
    bool all = true;
    for (std::uint32_t block = 0; block < odd_sizes.size(); ++block)
      all = all && reads_step(*store, *reader, block, 1);
    return all;
  };
  EXPECT_TRUE(all_of_step_1());
  bool beside = false;
  std::thread thread([&] { beside = all_of_step_1(); });
  write_step(*store, 2);
  thread.join();
  EXPECT_TRUE(beside);
  EXPECT_TRUE(all_of_step_1());
  store->commit({2, ""});
  EXPECT_TRUE(all_of_step_1());
  EXPECT_TRUE(holds_step(*store, 2));
}

TEST(SwapReader, has_a_failing_read_rebuilt_by_parity_without_a_path_lost_or_an_error_without_parity) {
  for (const std::uint32_t parity : {1u, 0u}) {
    const TemporaryFolder folder;
    auto plan = std::make_shared<FaultPlan>();
    const auto io = make_fault_engine(make_thread_engine({}), plan);
    const std::string first = folder.path("a"), second = folder.path("b");
    const auto store = SwapStore::create({.directories = {first, second}, .parity = parity},
                                         blocks_of({8192, 8192, 8192, 8192}), *io);
    commit_step(*store, 1);
    const auto reader = store->reader();
    plan->add({.direction = IoDirection::read, .path_suffix = "b/extents.bin", .code = EIO});
    int failed = 0;
    for (std::uint32_t block = 0; block < 4; ++block) try {
        EXPECT_TRUE(reads_step(*store, *reader, block, 1));
      } catch (const IoError&) {
        ++failed;
      }
    EXPECT_EQ(failed, parity == 1 ? 0 : 2);
    EXPECT_GT(plan->hits(), 0u);
    plan->clear();
    EXPECT_TRUE(store->lost_directories().empty());
    EXPECT_TRUE(holds_step(*store, 1));
  }
}

}  // namespace
}  // namespace headrace::testing
