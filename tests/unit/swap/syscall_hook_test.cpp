#include "tests/support/power_loss/syscall_hook.h"

#include <gtest/gtest.h>

#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

TEST(SyscallHook, sees_every_change_of_a_store_in_order_and_passes_it_on) {
  const TemporaryFolder folder;
  const auto engine = make_thread_engine({});
  const SwapStoreOptions options{{folder.path("s")}, Durability::step, "{}"};
  std::vector<std::string> seen;
  {
    const SyscallHook hook(folder.path(), [&](const FileEvent& event) {
      const std::string name = event.path.substr(event.path.rfind('/') + 1);
      if (name != "lock") seen.push_back(std::to_string(static_cast<int>(event.call)) + " " + name);
      return 0;
    });
    const auto store = SwapStore::create(options, blocks_of({4096}), *engine);
    seen.clear();
    commit_step(*store, 1);
  }
  EXPECT_EQ(seen,
            (std::vector<std::string>{"0 extents.bin", "1 extents.bin", "0 journal.bin", "1 journal.bin"}));
  EXPECT_TRUE(holds_step(*SwapStore::open(options, *engine), 1));
}

}  // namespace
}  // namespace headrace::testing
