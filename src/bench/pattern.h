// Known bytes: each follows from a seed and its place, so that data that is missing, moved or of another
// rank is told from what belongs there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "headrace/bytes.h"

namespace headrace {

// `memory` stands at `position` of the endless pattern of `seed`.
void fill_pattern(std::span<std::byte> memory, std::uint64_t seed, Bytes position = 0);
// Offset in `memory` of the first byte that differs.
std::optional<Bytes> pattern_mismatch(std::span<const std::byte> memory, std::uint64_t seed,
                                      Bytes position = 0);

// What a rank adds in a sum: a small whole number, so that fp32 sums over up to 2^14 ranks are exact.
float summand(int rank, std::uint64_t index);

}  // namespace headrace
