#include "swap/stripes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "headrace/errors.h"
#include "headrace/files.h"

namespace headrace::swap {
using namespace files;

AlignedMemory::AlignedMemory(Bytes bytes)
    : memory_(static_cast<std::byte*>(std::aligned_alloc(
          default_extent_alignment, round_up(std::max<Bytes>(bytes, 1), default_extent_alignment)))),
      bytes_(bytes) {
  if (!memory_) throw std::bad_alloc();
}

void AlignedMemory::Free::operator()(std::byte* memory) const noexcept {
  std::free(memory);
}

Bytes ParityBuffers::bytes(Bytes piece_bytes, std::uint32_t parity, std::uint32_t buffers) {
  return piece_bytes * parity * (buffers + 1);
}

ParityBuffers::ParityBuffers(Bytes piece_bytes, std::uint32_t parity, std::uint32_t buffers,
                             std::span<std::byte> memory) {
  const Bytes needed = bytes(piece_bytes, parity, buffers);
  if (memory.empty()) {
    own_ = AlignedMemory(needed);
    memory = own_.memory();
  }
  HEADRACE_CHECK(memory.size() >= needed && buffers > 0,
                 "{} bytes of parity memory and {} buffers, {} bytes are needed", memory.size(), buffers,
                 needed);
  rebuild_ = memory.data();
  for (std::uint32_t i = 1; i <= buffers; ++i) free_.push_back(memory.data() + i * piece_bytes * parity);
}

ParityBuffers::Slot& ParityBuffers::Slot::operator=(Slot&& other) noexcept {
  if (this != &other) {
    reset();
    owner_ = std::exchange(other.owner_, nullptr);
    memory_ = std::exchange(other.memory_, nullptr);
  }
  return *this;
}

void ParityBuffers::Slot::reset() noexcept {
  if (memory_ != nullptr) {
    const std::lock_guard lock(owner_->mutex_);
    owner_->free_.push_back(memory_);  // never more than it had: no allocation
  }
  owner_ = nullptr;
  memory_ = nullptr;
}

ParityBuffers::Slot ParityBuffers::try_acquire() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return {};
  std::byte* memory = free_.back();
  free_.pop_back();
  return {this, memory};
}

Stripes::Stripes(std::vector<SwapBlock> blocks_of_store, StripeMap map_of_blocks,
                 std::vector<StorePath> paths, const PathsState& state, IoEngine& io,
                 std::uint32_t parity_buffers, std::span<std::byte> parity_memory)
    : blocks(std::move(blocks_of_store)),
      map(std::move(map_of_blocks)),
      group(std::move(paths), map.shape(), state),
      engine(io) {
  const StripeShape& shape = map.shape();
  if (shape.parity == 0) return;
  code.emplace(shape.data_pieces(), shape.parity);
  buffers.emplace(map.largest_piece_bytes(), shape.parity, parity_buffers, parity_memory);
}

IoFile open_extents(const std::string& directory, const StripeShape& shape, IoFile::Mode mode) {
  const std::string path = join(directory, extents_name);
  IoFile file = IoFile::open(path, mode);
  if (shape.alignment % file.offset_alignment() != 0)
    file = IoFile::open(path, mode, false);  // the store was copied to a disk with larger blocks
  return file;
}

std::byte* Stripes::piece_memory(std::uint32_t block, std::uint32_t piece, std::byte* data,
                                 std::byte* parity) const {
  const std::uint32_t data_pieces = map.shape().data_pieces();
  return piece < data_pieces ? data + piece * map.piece_bytes(block)
                             : parity + (piece - data_pieces) * map.piece_bytes(block);
}

std::vector<std::string> Stripes::read_pieces(std::uint32_t block, std::span<const ExtentEntry> entries,
                                              std::byte* memory) const {
  const Bytes bytes = map.piece_bytes(block), checked = map.checked_bytes(block);
  std::vector<std::string> wrong(entries.size());
  std::vector<IoTicket> tickets(entries.size());
  for (std::size_t piece = 0; piece < entries.size() && bytes > 0; ++piece)
    if (!group.is_lost(entries[piece].path))
      tickets[piece] =
          engine.submit(IoDirection::read, group.extents(entries[piece].path), entries[piece].offset,
                        HostLease::borrowed({memory + piece * bytes, bytes}), bytes);
  for (std::size_t piece = 0; piece < entries.size() && bytes > 0; ++piece) {
    const ExtentEntry& entry = entries[piece];
    const std::string where = fmt::format("{} at offset {}", group.extents_path(entry.path), entry.offset);
    if (!tickets[piece]) {
      wrong[piece] = where + ": the path is lost";
      continue;
    }
    const IoResult result = tickets[piece].wait();
    const std::uint32_t crc = crc32c({memory + piece * bytes, checked});
    if (!result.ok())
      wrong[piece] = fmt::format("{}: {}", where, std::strerror(result.code));
    else if (result.bytes < checked)
      wrong[piece] = fmt::format("{}: the file ends after {} of {} bytes", where, result.bytes, checked);
    else if (crc != entry.crc32c)
      wrong[piece] = fmt::format("{}: its {} bytes have CRC32C {:08x}, {:08x} was written", where, checked,
                                 crc, entry.crc32c);
  }
  return wrong;
}

void Stripes::seal(std::uint32_t block, std::byte* data, std::byte* parity,
                   std::span<ExtentEntry> entries) const {
  const Bytes bytes = map.piece_bytes(block);
  if (code && bytes > 0) {
    std::vector<const std::byte*> in;
    std::vector<std::byte*> out;
    for (std::uint32_t piece = 0; piece < code->data(); ++piece)
      in.push_back(piece_memory(block, piece, data, parity));
    for (std::uint32_t piece = code->data(); piece < entries.size(); ++piece)
      out.push_back(piece_memory(block, piece, data, parity));
    code->encode(in, out, bytes);
  }
  for (std::uint32_t piece = 0; piece < entries.size(); ++piece)
    entries[piece].crc32c = crc32c({piece_memory(block, piece, data, parity), map.checked_bytes(block)});
}

}  // namespace headrace::swap
