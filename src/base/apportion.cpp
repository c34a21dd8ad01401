#include "src/base/apportion.h"

#include <algorithm>
#include <numeric>

namespace headrace {

std::vector<std::uint64_t> apportion(std::uint64_t count, std::span<const std::uint64_t> weights) {
  const std::uint64_t total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::vector<std::uint64_t> parts;
  std::vector<std::size_t> by_remainder(weights.size());
  std::iota(by_remainder.begin(), by_remainder.end(), std::size_t{0});
  for (const std::uint64_t weight : weights) parts.push_back(weight * count / total);
  std::stable_sort(by_remainder.begin(), by_remainder.end(), [&](std::size_t a, std::size_t b) {
    return weights[a] * count % total > weights[b] * count % total;
  });
  std::uint64_t left = count - std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
  for (std::size_t i = 0; left > 0; ++i, --left) ++parts[by_remainder[i]];
  return parts;
}

}  // namespace headrace
