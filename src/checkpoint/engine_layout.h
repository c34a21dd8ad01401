// What the engine writes into a swap store beside the blocks: the layout (which elements of which parameters
// a block holds) and the training state of a commit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/optimizer_state.h"

namespace headrace {

struct LayoutParameter {
  std::string name;
  std::uint64_t offset = 0, numel = 0;  // in the unit's flat vector
};

struct LayoutUnit {
  std::string name;
  std::uint64_t numel = 0;
  std::vector<LayoutParameter> parameters;  // in order of offset, empty ones left out
};

// The block holds the states (state_arrays) of the unit's elements [first, first + numel).
struct LayoutBlock {
  std::size_t unit = 0;
  std::uint64_t first = 0, numel = 0;
};

struct EngineLayout {
  std::uint32_t rank = 0, world_size = 0;
  int stage = 0;
  std::string dtype;
  bool optimizer_sharded = false;
  StateFormat states;
  std::uint64_t parameters = 0;  // empty ones included
  std::vector<LayoutUnit> units;
  std::vector<LayoutBlock> blocks;
  std::uint64_t parameter_numel() const;
};
EngineLayout parse_engine_layout(const std::string& text);  // throws CorruptData

struct CommitState {
  std::uint64_t data_position = 0, rng_state = 0, steps_applied = 0;
  double loss_scale = 1.0;
  bool operator==(const CommitState&) const = default;
};
CommitState parse_commit_state(const std::string& text);  // throws CorruptData

struct BlockSum {
  std::uint64_t sum = 0;    // of hash_states
  std::uint64_t numel = 0;  // parameter elements met, alignment gaps left out
};
BlockSum hash_block(const EngineLayout& layout, const LayoutBlock& block, std::span<std::byte> states);

}  // namespace headrace
