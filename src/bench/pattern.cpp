#include "src/bench/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace headrace {
namespace {

constexpr Bytes word_bytes = sizeof(std::uint64_t);

// splitmix64 of the word's number.
std::uint64_t word(std::uint64_t seed, std::uint64_t number) {
  std::uint64_t z = (seed << 48) + (number + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Calls visit(offset in memory, bytes of the pattern) for pieces of [position, position + bytes), in order,
// until it returns false.
template <class Visit>
void each_piece(Bytes bytes, std::uint64_t seed, Bytes position, const Visit& visit) {
  std::array<std::uint64_t, 64> words;
  for (Bytes done = 0; done < bytes;) {
    const Bytes first = (position + done) / word_bytes, skipped = (position + done) % word_bytes;
    for (std::size_t w = 0; w < words.size(); ++w) words[w] = word(seed, first + w);
    const auto piece = std::as_bytes(std::span(words)).subspan(skipped);
    const Bytes count = std::min<Bytes>(piece.size(), bytes - done);
    if (!visit(done, piece.first(count))) return;
    done += count;
  }
}

}  // namespace

void fill_pattern(std::span<std::byte> memory, std::uint64_t seed, Bytes position) {
  each_piece(memory.size(), seed, position, [&](Bytes offset, std::span<const std::byte> expected) {
    std::memcpy(memory.data() + offset, expected.data(), expected.size());
    return true;
  });
}

std::optional<Bytes> pattern_mismatch(std::span<const std::byte> memory, std::uint64_t seed, Bytes position) {
  std::optional<Bytes> found;
  each_piece(memory.size(), seed, position, [&](Bytes offset, std::span<const std::byte> expected) {
    if (std::memcmp(memory.data() + offset, expected.data(), expected.size()) == 0) return true;
    const auto differs = std::mismatch(expected.begin(), expected.end(), memory.data() + offset).first;
    found = offset + static_cast<Bytes>(differs - expected.begin());
    return false;
  });
  return found;
}

float summand(int rank, std::uint64_t index) {
  return static_cast<float>(word(static_cast<std::uint64_t>(rank), index) % 1024);
}

}  // namespace headrace
