// Reads the states of a pinned checkpoint from the swap stores that keep them, read-only: block by block,
// each checked, and rebuilt by parity where that is needed. The last block is kept, since neighbours are
// asked for next.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/swap_store.h"
#include "src/checkpoint/engine_layout.h"
#include "src/checkpoint/state_reader.h"

namespace headrace {

// The store of one rank, at the version that is pinned. CorruptData that says what is missing.
struct PinnedStore {
  std::vector<std::string> directories;
  std::unique_ptr<SwapStore> store;
  EngineLayout layout;
};
PinnedStore open_pinned_store(const std::string& path, const Manifest& manifest, std::uint32_t rank,
                              IoEngine& io);

class PinnedStates final : public StateReader {
 public:
  // CorruptData too where the stores do not hold what the manifest says.
  PinnedStates(std::string path, Manifest manifest, IoEngine& io, MemoryBudget& budget);
  static Bytes memory_bytes(const Manifest& manifest);  // 0 where the first store is not to be seen

  const Manifest& manifest() const override { return manifest_; }
  void expect(std::vector<ParameterRange>) override {}  // a block is much larger than what is asked for
  void read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel, const Visit& visit) override;
  std::vector<std::vector<Piece>> pieces_by_rank() const override;

 private:
  // Elements [first, first + numel) of a parameter: from element `at` of a block on.
  struct Place {
    std::uint64_t first = 0, numel = 0;
    std::uint32_t store = 0, block = 0;
    std::uint64_t at = 0;
  };
  void index(std::uint32_t rank);
  void check_complete();
  void load(const Place& place);
  [[noreturn]] void throw_damage(const Place& place, const std::string& why);

  std::string path_;
  Manifest manifest_;
  std::vector<PinnedStore> stores_;
  std::vector<std::vector<Place>> places_;  // by parameter, by first element
  std::vector<std::vector<Piece>> pieces_;  // by rank; of states that each has whole, of the first alone
  HostBuffer memory_;
  const PinnedStore* loaded_store_ = nullptr;
  std::uint32_t loaded_block_ = 0;
  StateArrays loaded_;
};

}  // namespace headrace
