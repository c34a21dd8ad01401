// A queue of operations and whatever carries them out, for the files of one block device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "aio/request_hook.h"
#include "aio/request_queue.h"

namespace headrace::aio {

using RegionId = std::uint64_t;

// Thread-safe.
class IoPath {
 public:
  virtual ~IoPath() = default;
  // Throws std::bad_alloc, and nothing was added.
  virtual void add(std::shared_ptr<Operation> operation) = 0;
  // Before the first bounced operation. Throws std::bad_alloc.
  virtual void prepare_to_bounce() {}
  // Blocks until the job, whose operations are all in this path, has ended.
  virtual void wait(Job& job) = 0;
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
  explicit IoPath(const RequestHook& hook) : hook_(hook) {}

  // How many bytes to ask the kernel for, or the result to complete the request with at once (<= 0).
  std::int64_t admit(const Request& request) const;
  // Hands a request's outcome to its operation, and the operation's to its owner when it has ended. The
  // caller holds no lock.
  void complete(const Request& request, std::int64_t result);

  RequestQueue queue_;

 private:
  const RequestHook& hook_;
};

}  // namespace headrace::aio
