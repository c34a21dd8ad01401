// Bytes between a range of a file and a leased buffer. Implemented by io_uring, by a thread pool of
// pread/pwrite, and by a fault-injecting engine in the tests.
//
// Threads: any thread may submit and wait; a ticket has one owner. submit never blocks on the device (it may
// wait for a queue slot). The buffer belongs to the ticket until take(). Short transfers are resumed, EINTR
// and EAGAIN retried; every other failure is an IoResult with an errno value, the end of the file while
// reading included (EIO; `bytes` says how much there was). Zero bytes are done at once. The engine outlives
// its tickets; a dropped ticket waits. A forked child may neither submit nor wait (std::logic_error,
// ECANCELED); its end leaves the parent's engine alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "headrace/bytes.h"
#include "headrace/lease.h"
#include "headrace/owned.h"

namespace headrace {

// A file opened for engine I/O. O_DIRECT where the file system allows it, with the alignment the file itself
// asks for (STATX_DIOALIGN); buffered with one warning where it does not.
class IoFile {
 public:
  enum class Mode : std::uint8_t {
    read_only,
    read_write,
    create
  };  // create: read, write, emptied when it exists
  static IoFile open(const std::string& path, Mode mode, bool direct = true);
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }
  std::uint32_t memory_alignment() const { return memory_alignment_; }  // 1 when buffered
  std::uint32_t offset_alignment() const { return offset_alignment_; }
  Bytes size_bytes() const;
  // Reserves the space, or throws IoError (ENOSPC) and keeps none. Without fallocate in the file system,
  // writes zeros.
  void preallocate(Bytes bytes);
  void sync_data();  // fdatasync; throws IoError
 private:
  Fd fd_;
  std::string path_;
  bool direct_ = false;
  std::uint32_t memory_alignment_ = 1, offset_alignment_ = 1;
};

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

 private:
  std::unique_ptr<State> state_;
};

struct IoCounters {
  Bytes read_bytes = 0, written_bytes = 0;
  double wait_seconds = 0;  // callers blocked in wait()
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual std::string_view name() const = 0;  // "io_uring", "threads"
  // Transfers `bytes` between `offset` of the file and the start of the lease's memory. For a direct file,
  // offset, bytes and address are multiples of its alignments (a caller's mistake is a std::logic_error at
  // submit).
  virtual IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                          Bytes bytes) = 0;
  virtual IoCounters counters() const = 0;
};

struct IoEngineOptions {
  std::uint32_t queue_depth = 32;
  Bytes request_bytes = 1 << 20;  // larger transfers are split into requests of this size
  bool require_io_uring = false;
};
// io_uring, or the thread pool with one message that says why and how to get io_uring.
std::unique_ptr<IoEngine> make_io_engine(const IoEngineOptions& options);
std::unique_ptr<IoEngine> make_uring_engine(const IoEngineOptions& options);  // throws Error when refused
std::unique_ptr<IoEngine> make_thread_engine(const IoEngineOptions& options);

// CRC32C (Castagnoli), as RFC 3720 defines it; `seed` continues a previous value.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t seed = 0);

}  // namespace headrace
