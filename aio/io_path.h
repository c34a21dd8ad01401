// A queue of operations and whatever carries them out, for the files of one block device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "aio/delayed_requests.h"
#include "aio/request_hook.h"
#include "aio/request_queue.h"

namespace headrace::aio {

using RegionId = std::uint64_t;

// Thread-safe.
class IoPath {
 public:
  virtual ~IoPath() = default;
  // Throws std::bad_alloc, and nothing was added. What may be kept back starts at issue_kept_back(), or when
  // its thread waits or polls.
  virtual void add(std::shared_ptr<Operation> operation, bool may_keep_back) = 0;
  virtual void issue_kept_back() {}
  // Before the first bounced operation. Throws std::bad_alloc.
  virtual void prepare_to_bounce() {}
  // Blocks until the job, whose operations are all in this path, has ended.
  virtual void wait(Job& job) = 0;
  // Blocks until one of the jobs, likewise, has ended.
  virtual void wait_any(std::span<Job* const> jobs);
  // Notices what has ended without blocking.
  virtual void poll() = 0;
  // The file's place in a table of the path, until the file is closed; -1 for none.
  virtual int fix_file(const IoFile& /*file*/) { return -1; }
  virtual void add_region(RegionId /*region*/, std::span<std::byte> /*memory*/) {}
  virtual void remove_region(RegionId /*region*/) {}
  virtual Bytes registered_bytes() const { return 0; }  // moved in regions

  // Requests of bounced operations have no more than this, and a path has no more buffers of that size.
  static constexpr Bytes bounce_bytes = Bytes{256} << 10;
  static constexpr std::uint32_t max_bounces = 64;

 protected:
  explicit IoPath(const RequestHook& hook);
  // By the destructor of what is derived, before anything else: requests are issued again on a thread.
  void stop_retrying() { delayed_.stop(); }

  // How many bytes to ask the kernel for, or the result to complete the request with at once (<= 0).
  std::int64_t admit(const Request& request) const;
  // Hands a request's outcome to its operation, and the operation's to its owner when it has ended; after
  // EAGAIN not now, but when it may be tried again. The caller holds no lock.
  void complete(const Request& request, std::int64_t result);
  // The queue has something to issue again. Called on any thread with no lock held.
  virtual void issue_queued() {}

  RequestQueue queue_;

 private:
  void report(const Request& request, std::int64_t result);

  const RequestHook& hook_;
  DelayedRequests delayed_;
};

}  // namespace headrace::aio
