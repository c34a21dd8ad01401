#include "src/zero/initial_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "headrace/state_hash.h"

namespace headrace {
namespace {

double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace

void initial_values(const ParameterSpec& parameter, std::uint64_t seed, std::uint64_t first,
                    std::span<float> out) {
  if (parameter.initial_std == 0.0f) {
    std::fill(out.begin(), out.end(), parameter.initial_mean);
    return;
  }
  const std::uint64_t key = splitmix64(hash_bytes(parameter.name) + seed);
  // Elements 2p and 2p + 1 are the two numbers of pair p.
  std::uint64_t index = first;
  for (float& value : out) {
    const std::uint64_t pair = index / 2;
    const double radius = std::sqrt(-2.0 * std::log(1.0 - unit_interval(splitmix64(key + 2 * pair))));
    const double angle = 2.0 * std::numbers::pi * unit_interval(splitmix64(key + 2 * pair + 1));
    const double normal = radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
    value = static_cast<float>(parameter.initial_mean + parameter.initial_std * normal);
    ++index;
  }
}

}  // namespace headrace
