// One rank's store, described and opened once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/inspect.h"
#include "headrace/swap_store.h"
#include "src/checkpoint/engine_layout.h"

namespace headrace {

struct RankStore {
  InspectedRank facts;
  EngineLayout layout;
  std::vector<SwapCommit> commits;
  std::unique_ptr<SwapStore> store;  // at the newest of `commits`; null when it cannot be opened

  const SwapCommit* commit_of(std::uint64_t step) const;
};

// Fills all but `store` from the small files. Throws what SwapStore::describe throws, CorruptData when blocks
// and layout contradict each other.
RankStore describe_rank(const std::vector<std::string>& folders);
// Opens it: its files are there and as long as they should be. Adds generations and the list of blocks.
void open_rank(RankStore& rank, const std::vector<std::string>& folders, bool list_blocks, IoEngine& engine);

}  // namespace headrace
