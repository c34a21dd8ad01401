#include "src/zero/read_ahead.h"

#include <algorithm>

namespace headrace {

ReadAhead::Change ReadAhead::expect(std::span<const Block> sequence) {
  const std::span<const Block> wanted = sequence.first(std::min<std::size_t>(sequence.size(), depth_));
  Change change;
  while (change.keep < wanted.size() && change.keep < on_its_way_.size() &&
         on_its_way_[change.keep] == wanted[change.keep])
    ++change.keep;
  on_its_way_.resize(change.keep);
  for (const Block block : wanted.subspan(change.keep)) {
    change.start.push_back(block);
    on_its_way_.push_back(block);
  }
  return change;
}

std::optional<ReadAhead::Taken> ReadAhead::take(Block block) {
  const auto found = std::find(on_its_way_.begin(), on_its_way_.end(), block);
  if (found == on_its_way_.end()) {
    on_its_way_.clear();
    return std::nullopt;
  }
  const auto passed_over = static_cast<std::size_t>(found - on_its_way_.begin());
  on_its_way_.erase(on_its_way_.begin(), found + 1);
  return Taken{passed_over};
}

}  // namespace headrace
