#include "aio/alignment.h"

#include <algorithm>

namespace headrace::aio {

AlignedParts cut_at_blocks(std::uint64_t offset, Bytes bytes, std::uintptr_t address, FileAlignment file) {
  AlignedParts parts;
  parts.head = std::min<Bytes>(round_up(offset, file.offset) - offset, bytes);
  const Bytes rest = bytes - parts.head;
  parts.tail = rest % file.offset;
  parts.middle = rest - parts.tail;
  parts.middle_bounced = parts.middle > 0 && (address + parts.head) % file.memory != 0;
  return parts;
}

}  // namespace headrace::aio
