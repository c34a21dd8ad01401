// The part of a transfer that covers a piece of one block of a direct file. Reading: the block, by way of a
// copy. Writing: the block is read, changed and written back, alone [BlockLocks]; a block that reaches beyond
// the end of the file is cut off again where the file has to end.
#pragma once

#include <cstdint>
#include <memory>

#include "aio/aligned_memory.h"
#include "aio/block_locks.h"
#include "aio/file_ends.h"
#include "aio/io_path.h"

namespace headrace::aio {

// The engine around it.
class EdgeHost {
 public:
  virtual BlockLocks& block_locks() = 0;
  virtual FileEnds& file_ends() = 0;

 protected:
  ~EdgeHost() = default;
};

class EdgeBlock final : public OperationOwner, public std::enable_shared_from_this<EdgeBlock> {
 public:
  // `whole` is the operation that would move the block: its offset is the block's start, its address what
  // goes to byte `skip` of the block, `job` and `part` whom to report to.
  EdgeBlock(Operation whole, Bytes block_bytes, Bytes memory_alignment, Bytes skip, Bytes bytes, IoPath& path,
            EdgeHost& host);

  // Throws std::bad_alloc, and nothing has begun.
  void begin();
  std::size_t part() const { return whole_.part; }
  void operation_ended(const Operation& operation) override;

 private:
  enum class State : std::uint8_t { reading, reading_to_change, writing };
  void move_block(IoDirection direction);
  void read_ended(const Transfer& transfer);
  void read_to_change_ended(const Transfer& transfer);
  void write_ended(const Transfer& transfer);
  void end(IoResult result);
  BlockName name() const { return {.file = whole_.job->file(), .offset = whole_.offset}; }

  Operation whole_;
  const Bytes block_bytes_, skip_, bytes_;
  IoPath& path_;
  EdgeHost& host_;
  AlignedMemory block_;
  State state_ = State::reading;
  Bytes old_bytes_ = 0;  // of the block, before a write: fewer than all at the end of the file
};

}  // namespace headrace::aio
