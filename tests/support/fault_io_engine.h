// Faults on plan. The same rules work at two places:
//   make_fault_engine(inner, plan)  at the seam: a transfer hit by a rule ends with the rule's errno;
//   plan->request_hook()            inside a real engine (aio/request_hook.h): a request to the kernel is cut
//   short or
//                                   answered with an errno, and the engine's own resuming and retrying is
//                                   exercised.
// Transfers (or requests) that no rule hits pass through. Thread-safe; of several rules that match, the first
// one counts.
//
//   auto plan = std::make_shared<FaultPlan>();
//   plan->add({.direction = IoDirection::write, .first = 3, .count = 1, .code = EIO});            // the
//   fourth write plan->add({.direction = IoDirection::read, .begin = 1 << 20, .end = 2 << 20, .code = EIO});
//   // a bad MiB plan->add({.direction = IoDirection::write, .code = ENOSPC, .moved_bytes = 4096}); // a torn
//   write plan->add({.every = 2, .moved_bytes = 512});                                                  //
//   hook: short transfers
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "aio/request_hook.h"
#include "headrace/io_engine.h"

namespace headrace::testing {

struct FaultRule {
  std::optional<IoDirection> direction{};  // empty: both
  std::string path_suffix{};               // seam only; "": every file
  // A transfer matches when it touches [begin, end) of the file ...
  std::uint64_t begin = 0, end = std::numeric_limits<std::uint64_t>::max();
  // ... and is hit when, of those that match (numbered from 0), it is number first, first + every, ...,
  // `count` times.
  std::uint64_t first = 0, every = 1, count = std::numeric_limits<std::uint64_t>::max();
  int code = 0;  // errno value of the outcome; 0: none, the transfer is only short (hook) or untouched (seam)
  Bytes moved_bytes = 0;  // bytes that are transferred all the same; without a code, 0 is the end of the file
};

class FaultPlan : public std::enable_shared_from_this<FaultPlan> {
 public:
  void add(FaultRule rule);
  void clear();
  std::uint64_t hits() const;  // faults made so far

  std::optional<FaultRule> match(IoDirection direction, const std::string& path, std::uint64_t offset,
                                 Bytes bytes);
  aio::RequestHook request_hook();  // keeps the plan alive

 private:
  struct Counted {
    FaultRule rule;
    std::uint64_t matched = 0, hit = 0;
  };
  mutable std::mutex mutex_;
  std::vector<Counted> rules_;
  std::uint64_t hits_ = 0;
};

// name() is "fault"; counters() are the inner engine's.
std::unique_ptr<IoEngine> make_fault_engine(std::unique_ptr<IoEngine> inner, std::shared_ptr<FaultPlan> plan);

}  // namespace headrace::testing
