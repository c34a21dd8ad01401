// Transfers waiting for an engine, in the order in which their requests are issued: reads before writes, each
// first come first served. The computation waits for reads; nobody waits for a write until its buffer is
// needed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "aio/transfer.h"
#include "headrace/io_engine.h"

namespace headrace::aio {

// A submitted transfer, shared by its ticket and the engine. `transfer` and `queued` belong to the queue,
// `result` to the ticket once `finished` is set. The lease stays with the ticket: an engine may drop its last
// reference to an operation after the ticket has gone, when the pool of the buffer may have gone too.
struct Operation {
  Operation(IoDirection direction_in, int fd_in, std::uint64_t offset_in, std::byte* address_in,
            Transfer transfer_in)
      : direction(direction_in),
        fd(fd_in),
        offset(offset_in),
        address(address_in),
        transfer(std::move(transfer_in)) {}

  void finish(IoResult value) {
    result = value;
    finished.store(1, std::memory_order_release);
    finished.notify_all();
  }

  const IoDirection direction;
  const int fd;
  const std::uint64_t offset;
  std::byte* const address;
  Transfer transfer;
  bool queued = false;
  IoResult result;
  std::atomic<int> finished{0};
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
  std::optional<Request> try_next();
  std::optional<Request> wait_next();  // blocks; empty after close()
  // Takes a request's outcome: a count of bytes or a negated errno value. Returns whether its operation has
  // ended.
  bool complete(const Request& request, std::int64_t result);
  void close();

 private:
  // A write goes first after this many reads in a row, so that endless reads cannot starve it.
  static constexpr std::uint32_t max_reads_in_a_row = 32;

  using Operations = std::deque<std::shared_ptr<Operation>>;
  std::optional<Request> next_locked();
  std::optional<Request> next_of(Operations& operations);
  Operations& operations_of(IoDirection direction) {
    return direction == IoDirection::read ? reads_ : writes_;
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  Operations reads_, writes_;
  std::uint32_t reads_in_a_row_ = 0;
  bool closed_ = false;
};

}  // namespace headrace::aio
