// Which blocks are read ahead of their use, as a pure value: what is on its way, against what is expected.
// What was expected wrongly is dropped; nothing is asked for beyond `depth`. Every element is a block's
// index.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace headrace {

class ReadAhead {
 public:
  using Block = std::uint32_t;
  explicit ReadAhead(std::uint32_t depth) : depth_(depth) {}

  // The blocks that will be taken next, in this order (at least `depth` of them, or all there are). The first
  // `keep` of those on their way stay, those behind are to be dropped, then `start` to be asked for.
  struct Change {
    std::size_t keep = 0;
    std::vector<Block> start;
  };
  Change expect(std::span<const Block> sequence);

  // The block is needed now. If it is on its way it is so no longer, and neither are the `passed_over` ones
  // before it, which are to be dropped; nullopt: it is not, everything is to be dropped and the block asked
  // for.
  struct Taken {
    std::size_t passed_over = 0;
  };
  std::optional<Taken> take(Block block);

  void clear() { on_its_way_.clear(); }
  const std::deque<Block>& on_its_way() const { return on_its_way_; }
  std::uint32_t depth() const { return depth_; }

 private:
  std::uint32_t depth_;
  std::deque<Block> on_its_way_;
};

}  // namespace headrace
