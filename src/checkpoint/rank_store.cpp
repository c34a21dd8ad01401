#include "src/checkpoint/rank_store.h"

#include <fmt/ranges.h>

#include "headrace/errors.h"

namespace headrace {
namespace {

void check_blocks(const SwapDescription& description, const EngineLayout& layout,
                  const std::string& directory) {
  if (layout.blocks.size() != description.blocks.size())
    throw CorruptData(fmt::format("{} has {} blocks, its layout {}", directory, description.blocks.size(),
                                  layout.blocks.size()));
  for (std::size_t i = 0; i < description.blocks.size(); ++i)
    if (description.blocks[i].bytes != state_bytes(layout.states, layout.blocks[i].numel))
      throw CorruptData(fmt::format("block \"{}\" of {} has {} bytes, its layout says {} elements of {}",
                                    description.blocks[i].name, directory, description.blocks[i].bytes,
                                    layout.blocks[i].numel, text_of(layout.states)));
}

// A journal that cannot be read is named by the path's state, or by what describe() throws.
std::vector<InspectedPath> inspect_paths(SwapDescription& description) {
  std::vector<InspectedPath> paths;
  for (SwapPath& path : description.paths) {
    InspectedPath& inspected = paths.emplace_back(InspectedPath{std::move(path), std::nullopt});
    if (description.durability != Durability::step || inspected.facts.state == SwapPath::State::missing)
      continue;
    try {
      inspected.journal = read_swap_journal(inspected.facts.directory);
    } catch (const Error&) {
    }
  }
  return paths;
}

}  // namespace

const SwapCommit* RankStore::commit_of(std::uint64_t step) const {
  for (const SwapCommit& commit : commits)
    if (commit.step == step) return &commit;
  return nullptr;
}

RankStore describe_rank(const std::vector<std::string>& folders) {
  SwapDescription description = SwapStore::describe(folders);
  RankStore store;
  store.layout = parse_engine_layout(description.layout);
  InspectedRank& facts = store.facts;
  facts.directory = fmt::format("{}", fmt::join(folders, ", "));
  check_blocks(description, store.layout, facts.directory);
  facts.rank = store.layout.rank;
  facts.world_size = store.layout.world_size;
  facts.stage = store.layout.stage;
  facts.dtype = store.layout.dtype;
  facts.optimizer_sharded = store.layout.optimizer_sharded;
  facts.states = store.layout.states;
  facts.parity = description.parity;
  facts.durability = description.durability;
  facts.owner = description.owner;
  for (const SwapCommit& commit : description.commits) facts.steps.push_back(commit.step);
  facts.pins = std::move(description.pins);
  facts.units = store.layout.units.size();
  facts.parameters = store.layout.parameters;
  facts.parameter_numel = store.layout.parameter_numel();
  facts.blocks = description.blocks.size();
  for (const SwapBlock& block : description.blocks) facts.blocks_bytes += block.bytes;
  facts.extents_bytes = description.extents_bytes;
  facts.disk_bytes = description.disk_bytes;
  facts.layout_identity = std::move(description.layout_identity);
  facts.paths = inspect_paths(description);
  store.commits = std::move(description.commits);
  return store;
}

void open_rank(RankStore& rank, const std::vector<std::string>& folders, bool list_blocks, IoEngine& engine) {
  rank.store = SwapStore::open_read_only(folders, engine);
  rank.commits = rank.store->commits();  // of a running job they may have moved on
  rank.facts.steps.clear();
  for (const SwapCommit& commit : rank.commits) rank.facts.steps.push_back(commit.step);
  rank.facts.pins = rank.store->pins();
  if (rank.facts.durability == Durability::none) return;
  using State = InspectedBlock::State;
  const std::vector<SwapBlock>& blocks = rank.store->blocks();
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    std::vector<SwapStore::Extent> extents = rank.store->extents(block);
    ++rank.facts.generations[extents.empty() ? 0 : extents.front().generation];
    if (!list_blocks) continue;
    const State state = extents.empty() ? State::never_written : State::unchecked;
    rank.facts.block_list.push_back({blocks[block].name, blocks[block].bytes, state, std::move(extents)});
  }
}

}  // namespace headrace
