#include "aio/queued_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <thread>

#include "headrace/errors.h"

namespace headrace::aio {
namespace {

constexpr std::uint32_t max_queue_depth = 4096;

void check_options(const IoEngineOptions& options) {
  if (options.queue_depth == 0 || options.queue_depth > max_queue_depth)
    throw UsageError(fmt::format("An I/O queue depth of {} is not possible: choose 1 to {}.",
                                 options.queue_depth, max_queue_depth));
  if (options.request_bytes == 0)
    throw UsageError("I/O requests of 0 bytes are not possible: choose at least 4KiB.");
}

void check_transfer(const IoFile& file, std::uint64_t offset, const HostLease& buffer, Bytes bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
  HEADRACE_CHECK(bytes <= buffer.memory().size(), "transfer of {} bytes with a buffer of {} bytes, {}", bytes,
                 buffer.memory().size(), file.path());
  HEADRACE_CHECK(offset <= static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) - bytes,
                 "offset {} with {} bytes is beyond any file, {}", offset, bytes, file.path());
  HEADRACE_CHECK(offset % file.offset_alignment() == 0 && bytes % file.offset_alignment() == 0,
                 "offset {} and {} bytes must be multiples of {} for direct I/O, {}", offset, bytes,
                 file.offset_alignment(), file.path());
  HEADRACE_CHECK(address % file.memory_alignment() == 0,
                 "address {:#x} must be a multiple of {} for direct I/O, {}", address,
                 file.memory_alignment(), file.path());
}

// Requests start at multiples of this, in the file and in memory.
Bytes alignment_of(const IoFile& file) {
  return std::max(file.offset_alignment(), file.memory_alignment());
}

void back_off(const Piece& piece) {
  if (piece.again > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(100) * std::min(piece.again, 10u));
}

}  // namespace

class QueuedEngine::Ticket final : public IoTicket::State {
 public:
  Ticket(std::shared_ptr<Operation> operation, HostLease buffer, QueuedEngine& engine)
      : operation_(std::move(operation)), buffer_(std::move(buffer)), engine_(engine) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() override { (void)wait(); }

  IoResult wait() override {
    if (!done()) {
      if (engine_.in_forked_child()) return {.code = ECANCELED};
      const auto start = std::chrono::steady_clock::now();
      operation_->finished.wait(0, std::memory_order_acquire);
      engine_.wait_nanoseconds_ += (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
    }
    return operation_->result;
  }
  bool done() override { return operation_->finished.load(std::memory_order_acquire) != 0; }
  HostLease take() override {
    (void)wait();
    return std::move(buffer_);
  }

 private:
  std::shared_ptr<Operation> operation_;
  HostLease buffer_;
  QueuedEngine& engine_;
};

QueuedEngine::QueuedEngine(const IoEngineOptions& options, RequestHook hook)
    : request_bytes_(options.request_bytes), hook_(std::move(hook)), owner_(::getpid()) {
  check_options(options);
}

QueuedEngine::~QueuedEngine() {
  if (in_forked_child()) (void)queue_.release();
}

IoTicket QueuedEngine::submit(IoDirection direction, const IoFile& file, std::uint64_t offset,
                              HostLease buffer, Bytes bytes) {
  HEADRACE_CHECK(!in_forked_child(), "an I/O engine used in a forked child, {}", file.path());
  check_transfer(file, offset, buffer, bytes);
  auto operation = std::make_shared<Operation>(direction, file.fd(), offset, buffer.data(),
                                               Transfer(bytes, request_bytes_, alignment_of(file)));
  IoTicket ticket(std::make_unique<Ticket>(operation, std::move(buffer), *this));
  if (bytes == 0) {
    operation->finish({});
  } else {
    queue_->add(std::move(operation));
    wake();
  }
  return ticket;
}

IoCounters QueuedEngine::counters() const {
  return {.read_bytes = read_bytes_.load(),
          .written_bytes = written_bytes_.load(),
          .wait_seconds = static_cast<double>(wait_nanoseconds_.load()) * 1e-9};
}

std::int64_t QueuedEngine::admit(const Request& request) const {
  back_off(request.piece);
  const Bytes bytes = request.piece.bytes;
  return hook_ ? hook_(request.operation->direction, request.offset(), bytes)
               : static_cast<std::int64_t>(bytes);
}

void QueuedEngine::complete(const Request& request, std::int64_t result) {
  if (!queue_->complete(request, result)) return;
  Operation& operation = *request.operation;
  const IoResult outcome = operation.transfer.result();
  (operation.direction == IoDirection::read ? read_bytes_ : written_bytes_) += outcome.bytes;
  operation.finish(outcome);
}

bool QueuedEngine::in_forked_child() const {
  return ::getpid() != owner_;
}

}  // namespace headrace::aio
