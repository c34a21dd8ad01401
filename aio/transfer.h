// One transfer cut into requests: splits, resumes, retries and sums up. Pure arithmetic, shared by the
// engines: no system calls, no locks (the owner serialises calls).
//
//   while (auto piece = transfer.next()) issue(*piece);      transfer.complete(piece, result);
//   transfer.done()
//
// Rules: a short result is resumed at the last multiple of the file's alignment; EINTR is retried without
// limit, EAGAIN `max_again` times (the owner pauses before it completes one), ECANCELED `max_cancelled`
// times; a result of zero bytes, or the same partial block twice, is the end of the file (EIO); any other
// errno ends the transfer: nothing more is handed out, what is in flight is waited for.
//
// [Note: cancelled] io_uring answers ECANCELED when the thread that asked has ended, which the next try
// mends, and when a request would block and the kernel cannot start a thread for it, which no number of tries
// does: the last one should be a system call that may block.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "headrace/io_engine.h"

namespace headrace::aio {

// Part of a transfer, counted from its start.
struct Piece {
  Bytes begin = 0, bytes = 0;
  std::uint32_t again = 0;      // times the kernel has answered EAGAIN
  std::uint32_t cancelled = 0;  // and ECANCELED
  bool blocking = false;        // only a call that blocks can do it
  bool partial = false;         // the last answer was less than one aligned block
  bool unregistered = false;    // its memory's registration has ended on the way
};

class Transfer {
 public:
  static constexpr std::uint32_t max_again = 1000, max_cancelled = 8;
  static constexpr Bytes max_piece_bytes = Bytes{1} << 30;  // one system call moves at most 2 GiB - 4 KiB

  // Pieces have piece_bytes rounded down to `alignment` (never below one aligned block).
  Transfer(Bytes bytes, Bytes piece_bytes, Bytes alignment);

  // What to issue next. Empty when nothing can be issued now; a later complete() may change that.
  std::optional<Piece> next();
  bool can_issue() const { return code_ == 0 && (!returned_.empty() || next_ < bytes_); }
  // `result` is what the system call answered: a count of bytes or a negated errno value.
  void complete(Piece piece, std::int64_t result);
  // Nothing is in flight and nothing will be issued.
  bool done() const;
  // Once done: all bytes, or the bytes known to be good at the start and the errno of what follows them.
  IoResult result() const;
  // Whether it was the end of the file (EIO otherwise may be the device's).
  bool at_end() const { return at_end_; }

 private:
  void resume(const Piece& piece, Bytes progress);
  void retry_partial(Piece piece, Bytes available);
  void retry(const Piece& piece, bool given_up, int code);
  void fail(Bytes at, int code);
  void end_of_file(Bytes at);

  Bytes bytes_, piece_bytes_, alignment_;
  Bytes next_ = 0;               // start of what was never handed out
  std::vector<Piece> returned_;  // to be issued again
  std::uint32_t in_flight_ = 0;
  Bytes failed_at_ = std::numeric_limits<Bytes>::max();
  int code_ = 0;
  bool at_end_ = false;
};

}  // namespace headrace::aio
