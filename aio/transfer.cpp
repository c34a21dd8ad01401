#include "aio/transfer.h"

#include <algorithm>
#include <cerrno>

#include "headrace/errors.h"

namespace headrace::aio {
namespace {

Bytes round_down(Bytes value, Bytes alignment) {
  return value / alignment * alignment;
}

}  // namespace

Transfer::Transfer(Bytes bytes, Bytes piece_bytes, Bytes alignment)
    : bytes_(bytes),
      piece_bytes_(std::max(round_down(std::min(piece_bytes, max_piece_bytes), alignment), alignment)),
      alignment_(alignment) {}

std::optional<Piece> Transfer::next() {
  if (code_ != 0) return std::nullopt;
  std::optional<Piece> piece;
  if (!returned_.empty()) {
    piece = returned_.back();
    returned_.pop_back();
  } else if (next_ < bytes_) {
    piece = Piece{.begin = next_, .bytes = std::min(piece_bytes_, bytes_ - next_)};
    next_ += piece->bytes;
  }
  if (piece) ++in_flight_;
  return piece;
}

void Transfer::complete(Piece piece, std::int64_t result) {
  HEADRACE_CHECK(in_flight_ > 0, "a request completed twice");
  --in_flight_;
  if (result == -EINTR) {
    returned_.push_back(piece);
  } else if (result == -EAGAIN) {
    retry(piece, ++piece.again > max_again, EAGAIN);
  } else if (result == -ECANCELED) {
    retry(piece, ++piece.cancelled > max_cancelled, ECANCELED);
  } else if (result < 0) {
    fail(piece.begin, static_cast<int>(-result));
  } else {
    resume(piece, static_cast<Bytes>(result));
  }
}

void Transfer::resume(const Piece& piece, Bytes progress) {
  HEADRACE_CHECK(progress <= piece.bytes, "{} of {} bytes transferred", progress, piece.bytes);
  if (progress == piece.bytes) return;
  const Bytes kept = round_down(progress, alignment_);
  if (kept > 0)
    returned_.push_back({.begin = piece.begin + kept, .bytes = piece.bytes - kept});
  else
    retry_partial(piece, progress);
}

// Less than one aligned block: a short transfer the first time, the end of the file when it happens again.
void Transfer::retry_partial(Piece piece, Bytes available) {
  if (available == 0 || piece.partial) return end_of_file(piece.begin + available);
  piece.partial = true;
  returned_.push_back(piece);
}

void Transfer::retry(const Piece& piece, bool given_up, int code) {
  if (given_up) return fail(piece.begin, code);
  returned_.push_back(piece);
}

// The error nearest to the start is the one reported, whatever the order of completion.
void Transfer::fail(Bytes at, int code) {
  if (at >= failed_at_) return;
  failed_at_ = at;
  code_ = code;
  at_end_ = false;
}

void Transfer::end_of_file(Bytes at) {
  if (at >= failed_at_) return;
  fail(at, EIO);
  at_end_ = true;
}

bool Transfer::done() const {
  return in_flight_ == 0 && (code_ != 0 || (returned_.empty() && next_ == bytes_));
}

IoResult Transfer::result() const {
  Bytes good = std::min(next_, failed_at_);
  for (const Piece& piece : returned_) good = std::min(good, piece.begin);
  return {.bytes = good, .code = code_};
}

}  // namespace headrace::aio
