#include "src/checkpoint/read_ring.h"

namespace headrace {
namespace {

constexpr Bytes alignment = 4096;

// In its first page. Elements stay aligned for the processor, whatever lies before them in the file.
Bytes start_of(const ReadRing::Part& part) {
  return part.offset % alignof(float) == 0 ? part.offset % alignment : 0;
}

Bytes bytes_of(const ReadRing::Part& part) {
  return round_up(start_of(part) + part.bytes, alignment);
}

}  // namespace

Bytes ReadRing::most_bytes_of(Bytes bytes) {
  return round_up(bytes, alignment) + alignment;
}

std::optional<std::vector<std::span<std::byte>>> ReadRing::take(std::span<const Part> parts) {
  Bytes bytes = 0;
  for (const Part& part : parts) bytes += bytes_of(part);
  const std::optional<Bytes> begin = place(bytes);
  if (!begin) return std::nullopt;
  taken_.push_back({*begin, *begin + bytes});
  std::vector<std::span<std::byte>> spans;
  Bytes at = *begin;
  for (const Part& part : parts) {
    spans.push_back(memory_.subspan(at + start_of(part), part.bytes));
    at += bytes_of(part);
  }
  return spans;
}

std::optional<Bytes> ReadRing::place(Bytes bytes) const {
  const auto fits = [&](Bytes begin, Bytes end) {
    return end - begin >= bytes ? std::optional(begin) : std::nullopt;
  };
  if (taken_.empty()) return fits(0, memory_.size());
  const Bytes oldest = taken_.front().begin, newest = taken_.back().end;
  if (newest <= oldest) return fits(newest, oldest);  // it has wrapped
  if (const auto behind = fits(newest, memory_.size())) return behind;
  return fits(0, oldest);
}

void ReadRing::give_back_oldest() {
  taken_.pop_front();
}

}  // namespace headrace
