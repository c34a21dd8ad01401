// Bytes between a range of a file and a leased buffer. Implemented by io_uring, by a thread pool of
// pread/pwrite, and by a fault-injecting engine in the tests.
//
// Threads: any thread may submit and wait; a ticket has one owner. submit never blocks on the device (it may
// wait for a queue slot). The buffer belongs to the ticket until take(). Short transfers are resumed, EINTR
// and EAGAIN retried; every other failure is an IoResult with an errno value, the end of the file while
// reading included (EIO; `bytes` says how much there was). Zero bytes are done at once. The engine and the
// file outlive the ticket; a dropped ticket waits. A forked child may neither submit nor wait
// (std::logic_error, ECANCELED); its end leaves the parent's engine alone.
//
// Each block device has a queue of its own, where reads go before writes (which are not starved).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/io_file.h"
#include "headrace/lease.h"

namespace headrace {

struct [[nodiscard]] IoResult {
  Bytes bytes = 0;  // after an error: those known to be good, from the start
  int code = 0;     // errno value
  bool ok() const { return code == 0; }
};

enum class IoDirection : std::uint8_t { read, write };

// One transfer in flight. wait() blocks until it is complete (idempotent); take() returns the buffer, after
// wait().
class IoTicket {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual IoResult wait() = 0;
    virtual bool done() = 0;
    virtual HostLease take() = 0;
    virtual const void* queue() const { return nullptr; }  // whose tickets can be waited for together
    virtual std::vector<std::size_t> wait_for_any(std::span<State* const> among);  // [io_wait_any.h]
  };
  IoTicket() = default;
  explicit IoTicket(std::unique_ptr<State> state) : state_(std::move(state)) {}
  IoTicket(IoTicket&&) noexcept = default;
  IoTicket& operator=(IoTicket&& other) noexcept;
  ~IoTicket();
  explicit operator bool() const { return state_ != nullptr; }
  IoResult wait();
  bool done();
  HostLease take();
  State* state() const { return state_.get(); }

 private:
  std::unique_ptr<State> state_;
};

// Memory that an engine knows in advance, until the end of this object; the memory and the engine may not end
// before it.
class [[nodiscard]] IoRegistration {
 public:
  struct State {
    virtual ~State() = default;
  };
  IoRegistration() = default;
  explicit IoRegistration(std::unique_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::unique_ptr<State> state_;
};

struct IoCounters {
  Bytes read_bytes = 0, written_bytes = 0;
  double wait_seconds = 0;     // callers blocked in wait()
  Bytes registered_bytes = 0;  // moved by requests in registered memory
  Bytes bounced_bytes = 0;     // moved by way of an aligned copy
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "threads"
  // Transfers `bytes` between `offset` of the file and the start of the lease's memory, of any alignment. On
  // a direct file the unaligned ends, or everything where the address is not aligned when the offset is, go
  // through copies. Transfers of one engine that are in flight together may share a block of a file: none
  // loses another's bytes. Of the blocks where they share bytes, and one writes, nothing is promised until
  // they have ended and been written again. A buffer too small, or an offset beyond any file, is a
  // std::logic_error.
  virtual IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                          Bytes bytes) = 0;
  virtual IoCounters counters() const = 0;
  // Makes transfers inside the memory cheaper where the engine can: io_uring locks its pages. What is refused
  // (one warning, when the limit of locked memory is the cause) works as if not registered. At any time.
  virtual IoRegistration register_memory(std::span<std::byte> /*memory*/) { return {}; }
  virtual void issue_kept_back() {}  // what a batch of the thread has kept back [io_batch.h]
};

struct IoEngineOptions {
  std::uint32_t queue_depth = 0;  // requests in flight on each device; 0: chosen from the device
  Bytes request_bytes = 0;        // larger transfers are split into requests of this size; 0: likewise
  bool require_io_uring = false;
  // Direct I/O by polling the device (IOPOLL), and submission by a thread of the kernel (SQPOLL): lower
  // latency for a core. io_uring only; one warning, and interrupts, where the device has no poll queues.
  bool poll_completions = false, poll_submissions = false;
};
// io_uring, or the thread pool with one message that says why and how to get io_uring.
std::unique_ptr<IoEngine> make_io_engine(const IoEngineOptions& options);
std::unique_ptr<IoEngine> make_uring_engine(const IoEngineOptions& options);  // throws Error when refused
std::unique_ptr<IoEngine> make_thread_engine(const IoEngineOptions& options);

// CRC32C (Castagnoli), as RFC 3720 defines it; `seed` continues a previous value.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t seed = 0);

}  // namespace headrace
