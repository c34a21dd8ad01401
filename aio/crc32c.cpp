#include <isa-l/crc.h>

#include <algorithm>

#include "headrace/io_engine.h"

namespace headrace {

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t seed) {
  constexpr std::size_t chunk_bytes = std::size_t{1} << 30;  // ISA-L counts bytes in an int
  std::uint32_t state = ~seed;                               // ISA-L leaves out both inversions of RFC 3720
  while (!data.empty()) {
    const auto chunk = data.first(std::min(data.size(), chunk_bytes));
    // ISA-L takes a pointer to non-const and only reads.
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(chunk.data()));
    state = crc32_iscsi(bytes, static_cast<int>(chunk.size()), state);
    data = data.subspan(chunk.size());
  }
  return ~state;
}

}  // namespace headrace
