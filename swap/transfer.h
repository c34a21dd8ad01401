// One read or write of a block, all its pieces, shared by the ticket that the caller holds and the store that
// waits for it at commit. The store's owner thread starts it; several threads may complete it at the same
// time, and each returns when it is complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "headrace/io_engine.h"
#include "headrace/swap_store.h"
#include "swap/stripes.h"

namespace headrace::swap {

class Transfer {
 public:
  // Starts it. `entries` are those of the block's pieces. `parity` holds the parity pieces of a write; a read
  // of a block with a piece on a lost path needs one too.
  // Only who may note that a path is lost says `notes_failures`; without it, failures are this transfer's.
  Transfer(std::shared_ptr<Stripes> stripes, IoDirection direction, std::uint32_t block,
           std::span<const ExtentEntry> entries, HostLease buffer, ParityBuffers::Slot parity,
           bool notes_failures = true);
  // Blocks until it is complete, checks what was read, and rebuilds by parity what is missing or damaged.
  // Idempotent; does not throw.
  void complete();
  bool is_complete();
  bool has_ended() const { return complete_.load(std::memory_order_acquire); }  // complete() has returned
  void check();      // complete(), then throws IoError or CorruptData if it failed
  HostLease take();  // complete(), then the buffer, whatever the outcome
  std::uint64_t offset() const { return entries_.front().offset; }

 private:
  struct Piece {
    std::uint32_t index;
    std::byte* memory;
    IoTicket ticket;
  };
  std::byte* memory_of(std::uint32_t piece) const;
  void submit(std::uint32_t piece, std::byte* memory);
  void submit_read();
  void complete_piece(Piece& piece);
  void complete_read_piece(const Piece& piece, IoResult result);
  bool path_answers(std::uint32_t path);
  void rebuild();
  [[noreturn]] void throw_corruption() const;
  void fail(std::uint32_t piece, int code);
  void damage(std::uint32_t piece, const std::string& why);
  void tell_rebuilt() const;
  std::string what() const;  // read of block "name" (generation 3)
  bool has_parity() const { return stripes_->code.has_value(); }

  const std::shared_ptr<Stripes> stripes_;
  const IoDirection direction_;
  const std::uint32_t block_;
  const std::vector<ExtentEntry> entries_;
  HostLease buffer_;
  ParityBuffers::Slot parity_;
  const bool notes_failures_;
  std::vector<Piece> in_flight_;
  std::vector<std::byte*> good_;  // by piece: where it was read to and found right
  struct Problem {
    std::uint32_t piece;
    std::string text;
  };
  std::vector<Problem> problems_;  // of pieces that were read and are damaged
  std::mutex completing_;
  std::atomic<bool> complete_ = false;
  int code_ = 0;
  std::uint32_t failed_piece_ = 0;
  std::string corruption_;
  bool too_many_lost_ = false;
};

SwapTicket make_ticket(std::shared_ptr<Transfer> transfer);

}  // namespace headrace::swap
