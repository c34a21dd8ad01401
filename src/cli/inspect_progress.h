// What `inspect` says on stderr while it reads: a line that redraws itself on a terminal, elsewhere one every
// few seconds.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>

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
  void repaired(Bytes bytes, Bytes total);
  void show(const std::function<std::string()>& line);  // where it is time for one
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

// The engine of a repair: tells how far it is, and on Ctrl-C ends it by throwing RepairStopped out of
// submit(). That leaves the store as it was, or with some paths repaired, and every lock released.
struct RepairStopped {};
class RepairEngine final : public IoEngine {
 public:
  RepairEngine(IoEngine& io, Bytes bytes_to_read) : io_(io), bytes_to_read_(bytes_to_read) {}
  std::string_view name() const override { return io_.name(); }
  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override;
  IoCounters counters() const override { return io_.counters(); }
  IoRegistration register_memory(std::span<std::byte> memory) override { return io_.register_memory(memory); }
  void end_line() { progress_.erase(); }
  // "1.2 GiB of 3.0 GiB read, 20 MiB written"
  std::string so_far() const;

 private:
  IoEngine& io_;
  const Bytes bytes_to_read_;  // about; 0: not known
  Interrupt interrupt_;
  InspectProgress progress_;
};

}  // namespace headrace::cli
