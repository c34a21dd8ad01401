// What `inspect` says on stderr while it reads: a line that redraws itself on a terminal, elsewhere one every
// few seconds.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "headrace/bytes.h"
#include "headrace/io_engine.h"
#include "src/cli/interrupt.h"

namespace headrace::cli {

class InspectProgress {
 public:
  InspectProgress();
  ~InspectProgress() { erase(); }
  InspectProgress(const InspectProgress&) = delete;
  InspectProgress& operator=(const InspectProgress&) = delete;
  void checked(Bytes bytes, Bytes total);
  void show(std::string_view line);  // where it is time for one
  void erase();
  // "1.2 GiB of 3.0 GiB", as last told.
  std::string so_far() const;

 private:
  using Clock = std::chrono::steady_clock;
  const bool terminal_;
  bool drawn_ = false;
  Bytes bytes_ = 0, total_ = 0;
  Clock::time_point next_;
};

// A repair in the caller's thread: progress, and on Ctrl-C the end of the process with the status of that. A
// kill leaves the store as it was, or with some paths repaired.
class RepairWatch {
 public:
  explicit RepairWatch(const IoEngine& io);

 private:
  void run(const std::stop_token& stop);
  const IoEngine& io_;
  Interrupt interrupt_;
  std::jthread thread_;
};

}  // namespace headrace::cli
