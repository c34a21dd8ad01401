#include "swap/path_damage.h"

#include <bit>

namespace headrace::swap {

bool PathDamage::note(std::uint32_t path, std::uint64_t offset, std::uint64_t generation) {
  const auto [place, is_new] = paths_[path].newest.try_emplace(offset, generation);
  if (!is_new && place->second == generation) return false;
  place->second = generation;
  note(path);
  return true;
}

bool PathDamage::is_too_much(std::uint32_t path, std::uint64_t lost, std::uint32_t parity) const {
  if (pieces(path) < most_pieces) return false;
  std::uint64_t gone_or_damaged = lost;
  for (std::uint32_t p = 0; p < paths_.size(); ++p)
    if (pieces(p) > 0) gone_or_damaged |= std::uint64_t{1} << p;
  return static_cast<std::uint32_t>(std::popcount(gone_or_damaged)) <= parity;
}

}  // namespace headrace::swap
