#include "aio/memory_table.h"

#include <algorithm>

namespace headrace::aio {
namespace {

std::uintptr_t number_of(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace

std::vector<std::span<std::byte>> cut_region(std::span<std::byte> memory, Bytes max_bytes) {
  constexpr Bytes huge_page = Bytes{2} << 20, overlap = 2 * huge_page;
  const Bytes bytes = memory.size();
  const std::uintptr_t begin = number_of(memory.data());
  const Bytes head = round_up(begin, huge_page) - begin;
  const Bytes tail = (begin + bytes) % huge_page;
  const bool has_middle = bytes > head + tail + overlap;
  const Bytes middle_end = has_middle ? bytes - tail : bytes;
  std::vector<std::span<std::byte>> pieces;
  for (Bytes at = has_middle ? head : 0; at < middle_end; at += max_bytes)
    pieces.push_back(memory.subspan(at, std::min(max_bytes, middle_end - at)));
  if (has_middle && head > 0) pieces.push_back(memory.first(head + overlap));
  if (has_middle && tail > 0) pieces.push_back(memory.last(tail + overlap));
  return pieces;
}

MemoryTable::MemoryTable(std::uint32_t places, Bytes max_bytes) : max_bytes_(max_bytes) {
  for (std::uint32_t place = places; place > 0; --place) free_.push_back(place - 1);
}

std::vector<MemoryTable::Piece> MemoryTable::take(std::span<std::byte> memory) {
  std::vector<Piece> pieces;
  for (const std::span<std::byte> piece : cut_region(memory, max_bytes_)) {
    if (free_.empty()) break;
    pieces.push_back({.place = free_.back(), .memory = piece});
    free_.pop_back();
  }
  return pieces;
}

void MemoryTable::publish(RegionId region, const Piece& piece) {
  known_.emplace(number_of(piece.memory.data()), Known{region, piece});
}

std::vector<std::uint32_t> MemoryTable::withdraw(RegionId region) {
  std::vector<std::uint32_t> places;
  std::erase_if(known_, [&](const auto& entry) {
    if (entry.second.region != region) return false;
    places.push_back(entry.second.piece.place);
    return true;
  });
  return places;
}

// The pieces that begin at or before the address, nearest first: an end may lie over the middle.
std::optional<std::uint32_t> MemoryTable::find(const std::byte* address, Bytes bytes) const {
  constexpr int max_looks = 3;
  const Piece* best = nullptr;
  auto next = known_.upper_bound(number_of(address));
  for (int looks = 0; looks < max_looks && next != known_.begin(); ++looks) {
    const Piece& piece = (--next)->second.piece;
    const bool holds = number_of(address) + bytes <= number_of(piece.memory.data()) + piece.memory.size();
    if (holds && (best == nullptr || piece.memory.size() > best->memory.size())) best = &piece;
  }
  return best != nullptr ? std::optional(best->place) : std::nullopt;
}

}  // namespace headrace::aio
