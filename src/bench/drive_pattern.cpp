#include "src/bench/drive_pattern.h"

#include <algorithm>
#include <cstring>

#include "src/bench/pattern.h"

namespace headrace {
namespace {

struct Stamp {
  std::uint64_t place = 0;
  std::uint32_t generation = 0, check = 0;
  bool operator==(const Stamp&) const = default;
};
constexpr Bytes stamp_bytes = sizeof(Stamp);
static_assert(stamp_bytes == 16, "no padding: stamps are compared as they are stored");

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

Stamp stamp_of(std::uint64_t seed, std::uint64_t sector, std::uint32_t generation) {
  const std::uint64_t place = mixed(seed + (sector + 1) * 0x9e3779b97f4a7c15u);
  return {.place = place,
          .generation = generation,
          .check = static_cast<std::uint32_t>(mixed(place + generation))};
}

Stamp stamp_at(const std::byte* sector) {
  Stamp stamp;
  std::memcpy(&stamp, sector, stamp_bytes);
  return stamp;
}

}  // namespace

DrivePattern::DrivePattern(std::uint64_t seed) : seed_(mixed(seed)), tile_(tile_bytes) {
  fill_pattern(tile_, seed_ & 0xffff);
}

void DrivePattern::fill_noise(std::span<std::byte> block, std::uint64_t offset) const {
  for (Bytes at = 0; at < block.size();) {
    const Bytes in_tile = (offset + at) % tile_bytes;
    const Bytes count = std::min<Bytes>(tile_bytes - in_tile, block.size() - at);
    std::memcpy(block.data() + at, tile_.data() + in_tile, count);
    at += count;
  }
}

void DrivePattern::stamp(std::span<std::byte> block, std::uint64_t offset, std::uint32_t generation) const {
  for (Bytes at = 0; at < block.size(); at += sector_bytes) {
    const Stamp stamp = stamp_of(seed_, (offset + at) / sector_bytes, generation);
    std::memcpy(block.data() + at, &stamp, stamp_bytes);
  }
}

void DrivePattern::clear_stamps(std::span<std::byte> block) {
  for (Bytes at = 0; at < block.size(); at += sector_bytes) std::memset(block.data() + at, 0, stamp_bytes);
}

std::optional<Bytes> DrivePattern::wrong_stamp(std::span<const std::byte> block, std::uint64_t offset,
                                               Generations allowed) const {
  for (Bytes at = 0; at < block.size(); at += sector_bytes) {
    const Stamp found = stamp_at(block.data() + at);
    const bool known = found.generation >= allowed.oldest && found.generation <= allowed.newest;
    if (!known || found != stamp_of(seed_, (offset + at) / sector_bytes, found.generation)) return at;
  }
  return std::nullopt;
}

std::optional<Bytes> DrivePattern::wrong_byte(std::span<const std::byte> block, std::uint64_t offset,
                                              Generations allowed) const {
  for (Bytes at = 0; at < block.size(); at += sector_bytes) {
    const auto sector = block.subspan(at, sector_bytes);
    if (wrong_stamp(sector, offset + at, allowed)) return at;
    const auto noise = sector.subspan(stamp_bytes);
    const std::byte* expected = tile_.data() + (offset + at) % tile_bytes + stamp_bytes;
    if (std::memcmp(noise.data(), expected, noise.size()) == 0) continue;
    const auto differs = std::mismatch(noise.begin(), noise.end(), expected).first;
    return at + stamp_bytes + static_cast<Bytes>(differs - noise.begin());
  }
  return std::nullopt;
}

}  // namespace headrace
