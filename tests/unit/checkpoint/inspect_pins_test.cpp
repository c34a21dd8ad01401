// What inspect says of pinned versions in swap paths.
#include <gmock/gmock.h>

#include "headrace/inspect.h"
#include "tests/unit/checkpoint/engine_store.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

class InspectPinsTest : public ::testing::Test {
 protected:
  // Step 1 is pinned, and 4 is the newest one.
  void make(std::uint32_t parity) {
    std::vector<std::string> folders;
    for (std::uint32_t path = 0; path <= parity; ++path) {
      std::filesystem::create_directory(folder_.path(std::to_string(path)));
      folders.push_back(folder_.path(std::to_string(path)) + "/rank-00000");
    }
    EngineStore store(folders, 0, 1, 1, 333, *engine_, Durability::step, parity, {}, 1);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      store.commit(step);
      store.release();
      if (step == 1) (*store).pin("kept");
    }
  }
  InspectReport inspect(bool verify) {
    return inspect_swap_path({folder_.path("0")}, {.verify = verify}, *engine_);
  }
  SwapStore::Extent pinned_extent() {
    const auto folders = SwapStore::directories_of(folder_.path("0/rank-00000"));
    const auto store = SwapStore::open_read_only(folders, *engine_);
    store->position_at_pin("kept");
    return store->extents(0)[0];
  }

  TemporaryFolder folder_{memory_folder()};
  std::unique_ptr<IoEngine> engine_ = make_thread_engine({});
};

TEST_F(InspectPinsTest, pins_are_named_and_verify_reads_them) {
  for (const std::uint32_t parity : {0u, 1u}) {
    make(parity);
    const InspectReport good = inspect(true);
    EXPECT_TRUE(good.good()) << to_text(good);
    EXPECT_THAT(to_text(good), HasSubstr("kept (step 1)"));
    EXPECT_THAT(to_json(good), HasSubstr(R"("name": "kept")"));
    EXPECT_EQ(good.ranks[0].checked_bytes, 2 * good.ranks[0].blocks_bytes);
    const SwapStore::Extent extent = pinned_extent();
    flip_bit(extent.path, extent.offset);
    EXPECT_TRUE(inspect(false).good());
    EXPECT_FALSE(inspect(true).good());
    std::filesystem::remove_all(folder_.path("0"));
    std::filesystem::remove_all(folder_.path("1"));
  }
}

}  // namespace
}  // namespace headrace::testing
