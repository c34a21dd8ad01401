#include "aio/edge_block.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace headrace::aio {

EdgeBlock::EdgeBlock(Operation whole, Bytes block_bytes, Bytes memory_alignment, Bytes skip, Bytes bytes,
                     IoPath& path, EdgeHost& host)
    : whole_(std::move(whole)),
      block_bytes_(block_bytes),
      skip_(skip),
      bytes_(bytes),
      path_(path),
      host_(host),
      block_(allocate_aligned(block_bytes, std::max(block_bytes, memory_alignment))) {}

void EdgeBlock::begin() {
  if (whole_.direction == IoDirection::read) return move_block(IoDirection::read);
  host_.block_locks().acquire(name(), [self = shared_from_this()] {
    self->state_ = State::reading_to_change;
    self->move_block(IoDirection::read);
  });
}

void EdgeBlock::move_block(IoDirection direction) {
  try {
    auto operation = std::make_shared<Operation>(whole_);
    operation->direction = direction;
    operation->address = block_.get();
    operation->transfer = Transfer(block_bytes_, block_bytes_, block_bytes_);
    operation->owner = shared_from_this();
    path_.add(std::move(operation), false);
  } catch (const std::bad_alloc&) {
    end({.code = ENOMEM});
  }
}

void EdgeBlock::operation_ended(const Operation& operation) {
  switch (state_) {
    case State::reading:
      return read_ended(operation.transfer);
    case State::reading_to_change:
      return read_to_change_ended(operation.transfer);
    case State::writing:
      return write_ended(operation.transfer);
  }
}

void EdgeBlock::read_ended(const Transfer& transfer) {
  const IoResult block = transfer.result();
  const Bytes good = std::min(block.bytes - std::min(block.bytes, skip_), bytes_);
  std::memcpy(whole_.address, block_.get() + skip_, good);
  end({.bytes = good, .code = good == bytes_ ? 0 : block.code});
}

void EdgeBlock::read_to_change_ended(const Transfer& transfer) {
  const IoResult block = transfer.result();
  if (!block.ok() && !transfer.at_end()) return end({.code = block.code});
  old_bytes_ = block.bytes;
  std::memset(block_.get() + old_bytes_, 0, block_bytes_ - old_bytes_);
  std::memcpy(block_.get() + skip_, whole_.address, bytes_);
  state_ = State::writing;
  move_block(IoDirection::write);
}

void EdgeBlock::write_ended(const Transfer& transfer) {
  IoResult result{.code = transfer.result().code};
  const Bytes right_bytes = std::max(old_bytes_, skip_ + bytes_);
  if (result.ok() && right_bytes < block_bytes_ && old_bytes_ < block_bytes_)
    result.code = host_.file_ends().overrun(*whole_.job, whole_.fd, whole_.offset + block_bytes_,
                                            whole_.offset + right_bytes);
  if (result.ok()) result.bytes = bytes_;
  end(result);
}

// The job ends last: with it go the caller's memory and, maybe, the engine.
void EdgeBlock::end(IoResult result) {
  const auto self = shared_from_this();
  if (whole_.direction == IoDirection::write) host_.block_locks().release(name());
  whole_.job->end_part(whole_.part, result);
}

}  // namespace headrace::aio
