// What the engines share: checks at submit, the cut at the blocks of direct files, tickets, counters, and one
// path for each block device. An engine adds what carries the operations of a path out.
//
// Fork: threads and rings do not survive it, so a child may neither submit nor wait. submit checks, and in a
// child the destructors do nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "aio/device_limits.h"
#include "aio/edge_block.h"
#include "aio/io_path.h"
#include "aio/request_hook.h"
#include "headrace/io_engine.h"

namespace headrace::aio {

class TransferParts;

class QueuedEngine : public IoEngine, private EdgeHost {
 public:
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) final;
  IoCounters counters() const final;
  IoRegistration register_memory(std::span<std::byte> memory) final;
  void issue_kept_back() final;
  ~QueuedEngine() override;

 protected:
  QueuedEngine(const IoEngineOptions& options, RequestHook hook);

  // `polled`: for direct I/O alone, on a device with poll queues.
  virtual std::shared_ptr<IoPath> make_path(const IoShape& shape, bool polled) = 0;
  // The file's system can poll.
  virtual bool can_poll(const IoFile& /*file*/) const { return false; }
  const IoEngineOptions& options() const { return options_; }
  const RequestHook& hook() const { return hook_; }
  bool in_forked_child() const;

 private:
  class Ticket;
  class Registration;
  struct Path {
    std::uint64_t device;
    bool asked_to_poll, polls;
    IoShape shape;
    std::shared_ptr<IoPath> io;
  };
  struct Region {
    RegionId id;
    std::span<std::byte> memory;
  };

  const Path& path_of(const IoFile& file);
  const Path& open_path_and_register(const IoFile& file);
  const Path* find_path(const IoFile& file) const;
  const Path& open_path(const IoFile& file);
  std::shared_ptr<IoPath> make_path_or_share(const IoShape& shape);
  std::shared_ptr<IoPath> try_polled_path(const IoShape& shape, const IoFile& file);
  std::vector<std::shared_ptr<IoPath>> all_paths() const;
  void forget_region(RegionId region);
  void start(const std::shared_ptr<Job>& job, const IoFile& file, std::shared_ptr<TransferParts> parts);
  void note_end(Job& job);

  BlockLocks& block_locks() override { return block_locks_; }
  FileEnds& file_ends() override { return file_ends_; }

  const IoEngineOptions options_;
  const RequestHook hook_;
  const std::uint32_t owner_;  // fork_count() where it was made
  std::atomic<Bytes> read_bytes_{0}, written_bytes_{0}, bounced_bytes_{0};
  std::atomic<std::int64_t> wait_nanoseconds_{0};

  BlockLocks block_locks_;
  FileEnds file_ends_;

  std::mutex registering_mutex_;           // of all regions with a new path; before paths_mutex_
  mutable std::shared_mutex paths_mutex_;  // paths and regions
  std::vector<std::unique_ptr<Path>> paths_;
  std::vector<Region> regions_;
  RegionId next_region_ = 1;
};

}  // namespace headrace::aio
