#include "aio/memory_table.h"

#include <algorithm>

namespace headrace::aio {
namespace {

std::uintptr_t number_of(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

}  // namespace

MemoryTable::MemoryTable(std::uint32_t places, Bytes max_bytes) : max_bytes_(max_bytes) {
  for (std::uint32_t place = places; place > 0; --place) free_.push_back(place - 1);
}

std::vector<MemoryTable::Piece> MemoryTable::take(std::span<std::byte> memory) {
  std::vector<Piece> pieces;
  while (!memory.empty() && !free_.empty()) {
    const auto piece = memory.first(std::min<std::size_t>(memory.size(), max_bytes_));
    pieces.push_back({.place = free_.back(), .memory = piece});
    free_.pop_back();
    memory = memory.subspan(piece.size());
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

std::optional<std::uint32_t> MemoryTable::find(const std::byte* address, Bytes bytes) const {
  const auto after = known_.upper_bound(number_of(address));
  if (after == known_.begin()) return std::nullopt;
  const Piece& piece = std::prev(after)->second.piece;
  if (number_of(address) + bytes > number_of(piece.memory.data()) + piece.memory.size()) return std::nullopt;
  return piece.place;
}

}  // namespace headrace::aio
