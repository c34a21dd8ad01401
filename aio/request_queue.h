// Operations waiting for a path, in the order in which their requests are issued: reads before writes, each
// first come first served. The computation waits for reads; nobody waits for a write until its buffer is
// needed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "aio/job.h"
#include "aio/transfer.h"
#include "headrace/io_engine.h"

namespace headrace::aio {

struct Operation;

// What is to be done when an operation has ended, where that does not yet end its part of the job.
class OperationOwner {
 public:
  virtual ~OperationOwner() = default;
  virtual void operation_ended(const Operation& operation) = 0;
};

// A range of a file to move to or from a range of memory. `transfer` and `queued` belong to the queue.
struct Operation {
  IoDirection direction = IoDirection::read;
  int fd = -1;
  int fixed_file = -1;  // its place in the ring's table of files, or -1
  std::uint64_t offset = 0;
  std::byte* address = nullptr;
  bool bounced = false;  // requests go through a copy: the address is not aligned
  Transfer transfer;
  std::shared_ptr<Job> job;
  std::size_t part = 0;                     // of the job
  std::shared_ptr<OperationOwner> owner{};  // empty: the part ends with the operation
  bool queued = false;

  void ended() const { owner ? owner->operation_ended(*this) : job->end_part(part, transfer.result()); }
};

// One system call's worth of an operation.
struct Request {
  std::shared_ptr<Operation> operation;
  Piece piece;

  std::uint64_t offset() const { return operation->offset + piece.begin; }
  std::byte* address() const { return operation->address + piece.begin; }
};

// Thread-safe.
class RequestQueue {
 public:
  void add(std::shared_ptr<Operation> operation);
  // Without `may_bounce` a bounced operation keeps its place, and those of its direction behind it wait too.
  std::optional<Request> try_next(bool may_bounce = true);
  std::optional<Request> wait_next();  // blocks; empty after close()
  // Takes a request's outcome: a count of bytes or a negated errno value. Returns whether its operation has
  // ended.
  bool complete(const Request& request, std::int64_t result);
  bool empty() const;  // nothing can be issued now
  void close();

 private:
  // A write goes first after this many reads in a row, so that endless reads cannot starve it.
  static constexpr std::uint32_t max_reads_in_a_row = 32;

  using Operations = std::deque<std::shared_ptr<Operation>>;
  std::optional<Request> next_locked(bool may_bounce);
  std::optional<Request> next_write(bool may_bounce);
  static std::optional<Request> next_of(Operations& operations, bool may_bounce);
  Operations& operations_of(IoDirection direction) {
    return direction == IoDirection::read ? reads_ : writes_;
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  Operations reads_, writes_;
  std::uint32_t reads_in_a_row_ = 0;
  bool closed_ = false;
};

}  // namespace headrace::aio
