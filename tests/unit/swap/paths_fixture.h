// Stores of several paths, whose paths vanish.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fault_io_engine.h"
#include "tests/unit/swap/store_fixture.h"

namespace headrace::testing {

inline const std::vector<Bytes> many_odd_sizes = {4096, 1, 0, 12289, 511, 8192, 100'000, 4097, 65'536, 33};

class SwapPathsTest : public ::testing::Test {
 protected:
  std::string path(std::uint32_t p) const { return folder_.path(fmt::format("p{}", p)); }
  SwapStoreOptions options(std::uint32_t paths, std::uint32_t parity = 0,
                           Durability durability = Durability::step) const {
    SwapStoreOptions options{{}, durability, "{}", parity};
    for (std::uint32_t p = 0; p < paths; ++p) options.directories.push_back(path(p));
    return options;
  }
  std::unique_ptr<SwapStore> create(const SwapStoreOptions& options,
                                    const std::vector<Bytes>& sizes = odd_sizes) {
    return SwapStore::create(options, blocks_of(sizes), *engine_);
  }
  std::unique_ptr<SwapStore> open(const SwapStoreOptions& options) {
    return SwapStore::open(options, *engine_);
  }
  // Blocks of a step, with no ticket waited for before the last write.
  void write_together(SwapStore& store, std::uint64_t step) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<SwapTicket> tickets;
    for (std::uint32_t block = 0; block < store.blocks().size(); ++block) {
      buffers.push_back(std::make_unique<Buffer>(store.buffer_bytes(block)));
      fill(buffers.back()->memory().first(store.blocks()[block].bytes), seed_of(step, block));
      tickets.push_back(store.write(block, buffers.back()->lease()));
    }
    for (SwapTicket& ticket : tickets) ticket.wait();
  }
  void commit_and_release(SwapStore& store, std::uint64_t step) {
    write_together(store, step);
    store.commit({step, "metadata of step " + std::to_string(step)});
    store.release_superseded();
  }
  void fail(std::uint32_t p, std::optional<IoDirection> direction, int code) {
    plan_->add({.direction = direction, .path_suffix = fmt::format("p{}/extents.bin", p), .code = code});
  }

  TemporaryFolder folder_{memory_folder()};
  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::unique_ptr<IoEngine> engine_ = make_fault_engine(make_thread_engine({}), plan_);
};

}  // namespace headrace::testing
