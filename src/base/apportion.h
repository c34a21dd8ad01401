// Whole things divided in proportion to weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

// `count` in proportion to the weights, by largest remainder; the first of equals. The weights' sum is above
// 0, and times `count` below 2^64.
std::vector<std::uint64_t> apportion(std::uint64_t count, std::span<const std::uint64_t> weights);

}  // namespace headrace
