#include "swap/transfer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "headrace/errors.h"
#include "headrace/io_batch.h"
#include "headrace/shell_words.h"

namespace headrace::swap {
namespace {

class Ticket final : public SwapTicket::State {
 public:
  explicit Ticket(std::shared_ptr<Transfer> transfer) : transfer_(std::move(transfer)) {}
  // The buffer goes back now, not at the commit.
  ~Ticket() override { (void)transfer_->take(); }
  void wait() override {
    waited_ = true;
    transfer_->check();
  }
  HostLease take() override {
    if (!waited_) transfer_->check();  // nobody gets unchecked bytes by forgetting to wait
    return transfer_->take();
  }

 private:
  std::shared_ptr<Transfer> transfer_;
  bool waited_ = false;
};

}  // namespace

Transfer::Transfer(std::shared_ptr<Stripes> stripes, IoDirection direction, std::uint32_t block,
                   std::span<const ExtentEntry> entries, HostLease buffer, ParityBuffers::Slot parity,
                   bool notes_failures)
    : stripes_(std::move(stripes)),
      direction_(direction),
      block_(block),
      entries_(entries.begin(), entries.end()),
      buffer_(std::move(buffer)),
      parity_(std::move(parity)),
      notes_failures_(notes_failures),
      good_(entries_.size()) {
  const IoBatch batch(stripes_->engine);
  if (stripes_->map.piece_bytes(block_) == 0) {
    complete_ = true;
  } else if (direction_ == IoDirection::read) {
    submit_read();
  } else {
    for (std::uint32_t piece = 0; piece < entries_.size(); ++piece)
      if (!stripes_->group.is_lost(entries_[piece].path)) submit(piece, memory_of(piece));
  }
}

std::byte* Transfer::memory_of(std::uint32_t piece) const {
  return stripes_->piece_memory(block_, piece, buffer_.data(), parity_.memory());
}

void Transfer::submit(std::uint32_t piece, std::byte* memory) {
  const Bytes bytes = stripes_->map.piece_bytes(block_);
  const ExtentEntry& entry = entries_[piece];
  in_flight_.push_back({piece, memory,
                        stripes_->engine.submit(direction_, stripes_->group.extents(entry.path), entry.offset,
                                                HostLease::borrowed({memory, bytes}), bytes)});
}

// The data pieces; for each that lies on a lost path a parity piece.
void Transfer::submit_read() {
  const std::uint32_t data_pieces = stripes_->map.shape().data_pieces();
  std::uint32_t wanted = data_pieces;
  for (std::uint32_t piece = 0; piece < entries_.size() && wanted > 0; ++piece) {
    if (piece >= data_pieces && !parity_) break;
    if (stripes_->group.is_lost(entries_[piece].path)) continue;
    submit(piece, memory_of(piece));
    --wanted;
  }
}

std::string Transfer::what() const {
  return fmt::format("{} of swap block \"{}\" (generation {})",
                     direction_ == IoDirection::read ? "read" : "write", stripes_->blocks[block_].name,
                     entries_.front().generation);
}

void Transfer::fail(std::uint32_t piece, int code) {
  if (code_ != 0) return;
  code_ = code;
  failed_piece_ = piece;
}

void Transfer::damage(std::uint32_t piece, const std::string& why) {
  const ExtentEntry& entry = entries_[piece];
  problems_.push_back({piece, fmt::format("{} at offset {}: {}", stripes_->group.extents_path(entry.path),
                                          entry.offset, why)});
}

void Transfer::complete() {
  if (has_ended()) return;
  const std::lock_guard lock(completing_);
  if (has_ended()) return;
  for (Piece& piece : in_flight_) complete_piece(piece);
  in_flight_.clear();
  if (direction_ == IoDirection::read && code_ == 0) rebuild();
  parity_.reset();
  complete_.store(true, std::memory_order_release);
}

void Transfer::complete_piece(Piece& piece) {
  IoResult result = piece.ticket.wait();
  (void)piece.ticket.take();
  if (direction_ == IoDirection::read) return complete_read_piece(piece, result);
  if (result.ok() && result.bytes < stripes_->map.piece_bytes(block_)) result.code = EIO;
  if (result.ok()) return;
  const bool survives = stripes_->group.survives(entries_[piece.index].path, result.code, "writing");
  if (!survives) fail(piece.index, result.code);
  too_many_lost_ = too_many_lost_ || (!survives && stripes_->group.too_many_lost());
}

// A read that fails where the drive answers elsewhere is a bad place, not a lost path.
void Transfer::complete_read_piece(const Piece& piece, IoResult result) {
  const ExtentEntry& entry = entries_[piece.index];
  const Bytes checked = stripes_->map.checked_bytes(block_);
  if (!result.ok()) {
    if (!has_parity() || !is_path_failure(result.code)) return fail(piece.index, result.code);
    if (notes_failures_ && (result.code != EIO || !path_answers(entry.path)))
      (void)stripes_->group.survives(entry.path, result.code, "reading");
    else
      damage(piece.index, std::strerror(result.code));
  } else if (result.bytes < checked) {
    damage(piece.index, fmt::format("the file ends after {} of {} bytes", result.bytes, checked));
  } else if (const std::uint32_t crc = crc32c({piece.memory, checked}); crc != entry.crc32c) {
    damage(piece.index,
           fmt::format("its {} bytes have CRC32C {:08x}, {:08x} was written", checked, crc, entry.crc32c));
  } else {
    good_[piece.index] = piece.memory;
  }
}

// Whether the path reads anything at all: its first and its last place.
bool Transfer::path_answers(std::uint32_t path) {
  const IoFile& file = stripes_->group.extents(path);
  const Bytes bytes = stripes_->map.shape().alignment;
  const Bytes file_bytes = stripes_->map.file_bytes(path);
  const AlignedMemory memory(bytes);
  for (const std::uint64_t offset : {std::uint64_t{0}, file_bytes - bytes}) {
    IoTicket ticket =
        stripes_->engine.submit(IoDirection::read, file, offset, HostLease::borrowed(memory.memory()), bytes);
    if (ticket.wait().ok()) return true;
  }
  return false;
}

// Data pieces that were not read right are computed from the others; parity pieces are read as needed.
void Transfer::rebuild() {
  const StripeShape& shape = stripes_->map.shape();
  const std::uint32_t data_pieces = shape.data_pieces();
  std::vector<ParityCode::Piece> lost, sources;
  std::unique_lock<std::mutex> shared;
  for (std::uint32_t piece = 0; piece < data_pieces; ++piece)
    if (good_[piece] == nullptr) lost.push_back({piece, memory_of(piece)});
  if (lost.empty()) return;
  if (has_parity()) {
    // Parity that this transfer read lies in its own buffer; what is missing still goes beside it.
    if (!parity_) shared = stripes_->buffers->lock_rebuild_memory();
    std::byte* memory = parity_ ? parity_.memory() : stripes_->buffers->rebuild_memory();
    auto good = static_cast<std::uint32_t>(
        std::count_if(good_.begin(), good_.end(), [](const std::byte* piece) { return piece != nullptr; }));
    for (std::uint32_t piece = data_pieces; piece < entries_.size() && good < data_pieces; ++piece) {
      if (good_[piece] != nullptr || stripes_->group.is_lost(entries_[piece].path)) continue;
      submit(piece, stripes_->piece_memory(block_, piece, buffer_.data(), memory));
      complete_piece(in_flight_.back());
      in_flight_.pop_back();
      good += good_[piece] != nullptr;
    }
    for (std::uint32_t piece = 0; piece < entries_.size() && sources.size() < data_pieces; ++piece)
      if (good_[piece] != nullptr) sources.push_back({piece, good_[piece]});
  }
  if (sources.size() < data_pieces) {
    too_many_lost_ = stripes_->group.too_many_lost();
    std::vector<std::string> wrong;
    for (const Problem& problem : problems_) wrong.push_back(problem.text);
    for (const std::string& directory : stripes_->group.lost_directories())
      wrong.push_back(directory + ": lost");
    corruption_ = fmt::format("{}", fmt::join(wrong, "; "));
    return;
  }
  stripes_->code->rebuild(sources, lost, stripes_->map.piece_bytes(block_));
  for (const ParityCode::Piece& piece : lost) {
    const std::uint32_t crc = crc32c({piece.memory, stripes_->map.checked_bytes(block_)});
    if (crc != entries_[piece.index].crc32c)
      corruption_ = fmt::format("what parity gives has CRC32C {:08x}, {:08x} was written", crc,
                                entries_[piece.index].crc32c);
  }
  if (corruption_.empty() && notes_failures_) tell_rebuilt();
}

void Transfer::tell_rebuilt() const {
  for (const Problem& problem : problems_)
    stripes_->group.note_damage(
        entries_[problem.piece],
        fmt::format("swap block \"{}\" (generation {}) is damaged in {}", stripes_->blocks[block_].name,
                    entries_.front().generation, problem.text));
}

bool Transfer::is_complete() {
  const std::lock_guard lock(completing_);
  return has_ended() ||
         std::all_of(in_flight_.begin(), in_flight_.end(), [](Piece& piece) { return piece.ticket.done(); });
}

void Transfer::check() {
  complete();
  if (too_many_lost_) stripes_->group.throw_too_many_lost();
  if (code_ != 0) {
    const ExtentEntry& entry = entries_[failed_piece_];
    throw IoError(what(), stripes_->group.extents_path(entry.path), entry.offset,
                  stripes_->map.checked_bytes(block_), code_);
  }
  if (!corruption_.empty()) throw_corruption();
}

void Transfer::throw_corruption() const {
  const bool keeps_steps = stripes_->map.shape().durability == Durability::step;
  throw CorruptData(fmt::format(
      "swap block \"{}\" (generation {}) is damaged in {}. The disk or another program changed it, and the "
      "run cannot continue from this step: {}",
      stripes_->blocks[block_].name, entries_.front().generation, corruption_,
      keeps_steps ? fmt::format("{}. `headrace inspect --verify --blocks {}` lists all damage.",
                                how_to_start_anew, shell_words(stripes_->group.directories()))
                  : "check the drive, and start the run again."));
}

HostLease Transfer::take() {
  complete();
  return std::move(buffer_);
}

SwapTicket make_ticket(std::shared_ptr<Transfer> transfer) {
  return SwapTicket(std::make_unique<Ticket>(std::move(transfer)));
}

}  // namespace headrace::swap
