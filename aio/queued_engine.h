// What the engines share: checks at submit, tickets, counters, and the queue that requests are taken from. An
// engine adds the threads that carry requests out.
//
// Fork: threads do not survive it, so a child may neither submit nor join. submit checks, and the engines'
// destructors do nothing in a child.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "aio/request_hook.h"
#include "aio/request_queue.h"
#include "headrace/io_engine.h"

namespace headrace::aio {

class QueuedEngine : public IoEngine {
 public:
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) final;
  IoCounters counters() const final;
  ~QueuedEngine() override;

 protected:
  QueuedEngine(const IoEngineOptions& options, RequestHook hook);

  // There is something new in the queue. Any thread.
  virtual void wake() = 0;

  // How many bytes to ask the kernel for, or the result to complete the request with at once (<= 0).
  std::int64_t admit(const Request& request) const;
  // Hands a request's outcome to its transfer, and the transfer's to its ticket when it has ended.
  void complete(const Request& request, std::int64_t result);
  bool in_forked_child() const;

  std::unique_ptr<RequestQueue> queue_ = std::make_unique<RequestQueue>();

 private:
  class Ticket;

  const Bytes request_bytes_;
  const RequestHook hook_;
  const pid_t owner_;
  std::atomic<Bytes> read_bytes_{0}, written_bytes_{0};
  std::atomic<std::int64_t> wait_nanoseconds_{0};
};

}  // namespace headrace::aio
