#include "aio/request_queue.h"

namespace headrace::aio {

void RequestQueue::add(std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(mutex_);
    operation->queued = true;
    operations_of(operation->direction).push_back(std::move(operation));
  }
  ready_.notify_all();  // one operation is many requests
}

std::optional<Request> RequestQueue::try_next(bool may_bounce) {
  const std::lock_guard lock(mutex_);
  return next_locked(may_bounce);
}

std::optional<Request> RequestQueue::wait_next() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (auto request = next_locked(true)) return request;
    if (closed_) return std::nullopt;
    ready_.wait(lock);
  }
}

bool RequestQueue::empty() const {
  const std::lock_guard lock(mutex_);
  return reads_.empty() && writes_.empty();
}

bool RequestQueue::complete(const Request& request, std::int64_t result) {
  Operation& operation = *request.operation;
  bool resumed = false, ended = false;
  {
    const std::lock_guard lock(mutex_);
    operation.transfer.complete(request.piece, result);
    ended = operation.transfer.done();
    if (!operation.queued && operation.transfer.can_issue()) {  // ahead of younger operations
      operation.queued = resumed = true;
      operations_of(operation.direction).push_front(request.operation);
    }
  }
  if (resumed) ready_.notify_one();
  return ended;
}

void RequestQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  ready_.notify_all();
}

std::optional<Request> RequestQueue::next_locked(bool may_bounce) {
  if (writes_.empty()) reads_in_a_row_ = 0;
  if (reads_in_a_row_ >= max_reads_in_a_row)
    if (auto write = next_write(may_bounce)) return write;
  if (auto read = next_of(reads_, may_bounce)) {
    ++reads_in_a_row_;
    return read;
  }
  return next_write(may_bounce);
}

// The reads are counted until a write goes, so that one that could not, for want of a bounce buffer, is first
// when it can.
std::optional<Request> RequestQueue::next_write(bool may_bounce) {
  auto write = next_of(writes_, may_bounce);
  if (write) reads_in_a_row_ = 0;
  return write;
}

// An operation with nothing to issue leaves the queue; complete() brings it back if it has to be resumed.
std::optional<Request> RequestQueue::next_of(Operations& operations, bool may_bounce) {
  while (!operations.empty()) {
    std::shared_ptr<Operation>& first = operations.front();
    if (first->bounced && !may_bounce) return std::nullopt;
    const auto piece = first->transfer.next();
    if (first->transfer.can_issue()) return Request{first, piece.value()};
    first->queued = false;
    std::shared_ptr<Operation> last = std::move(first);
    operations.pop_front();
    if (piece) return Request{std::move(last), *piece};
  }
  return std::nullopt;
}

}  // namespace headrace::aio
