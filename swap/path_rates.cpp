// How fast folders are, by a short probe of each through the engine.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>

#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "swap/stripes.h"

namespace headrace {
namespace swap {
using namespace files;
namespace {

using Clock = std::chrono::steady_clock;
constexpr Bytes transfer_bytes = 4 << 20;
constexpr std::size_t transfers_in_flight = 4;
constexpr Bytes probe_bytes = 64 << 20;
constexpr std::chrono::milliseconds time_a_direction{160};

struct Pass {
  Bytes bytes = 0;
  double seconds = 0;
};

class Probe {
 public:
  Probe(const std::string& directory, IoEngine& engine, const AlignedMemory& memory)
      : engine_(engine),
        memory_(memory),
        path_(join(directory, fmt::format(".headrace-probe-{}", ::getpid()))) {
    file_.emplace(IoFile::open(path_, IoFile::Mode::create));
    remove_file(path_);  // it is gone with its last descriptor, however this process ends
  }

  // 0 where the page cache would be measured. The first pass writes extents never written, which is slower,
  // and sets how far the others go.
  double rate() {
    if (!file_->direct()) return 0;
    const Bytes first = pass(IoDirection::write, probe_bytes).bytes;
    const Pass written = pass(IoDirection::write, first), read = pass(IoDirection::read, first);
    const double seconds = written.seconds + read.seconds;
    return seconds > 0 ? static_cast<double>(written.bytes + read.bytes) / seconds : 0;
  }

 private:
  Pass pass(IoDirection direction, Bytes limit) {
    std::deque<IoTicket> flying;
    const auto start = Clock::now();
    Bytes submitted = 0;
    const auto wait_for_one = [&] {
      const IoResult result = flying.front().wait();
      if (!result.ok()) throw IoError("probe", path_, 0, transfer_bytes, result.code);
      flying.pop_front();
    };
    while (submitted < limit && (submitted == 0 || Clock::now() - start < time_a_direction)) {
      if (flying.size() == transfers_in_flight) wait_for_one();
      const std::size_t slot = submitted / transfer_bytes % transfers_in_flight;
      flying.push_back(
          engine_.submit(direction, *file_, submitted,
                         HostLease::borrowed(memory_.memory().subspan(slot * transfer_bytes, transfer_bytes)),
                         transfer_bytes));
      submitted += transfer_bytes;
    }
    while (!flying.empty()) wait_for_one();
    return {submitted, seconds_since(start)};
  }

  IoEngine& engine_;
  const AlignedMemory& memory_;
  std::string path_;
  std::optional<IoFile> file_;
};

}  // namespace
}  // namespace swap

std::vector<double> measure_path_rates(const std::vector<std::string>& directories, IoEngine& engine) {
  using namespace swap;
  const AlignedMemory memory(transfer_bytes * transfers_in_flight);
  std::memset(memory.memory().data(), 0x5A, memory.memory().size());
  std::vector<double> rates;
  for (const std::string& directory : directories) {
    try {
      rates.push_back(Probe(directory, engine, memory).rate());
    } catch (const IoError&) {
      rates.push_back(0);  // too little space, for one: not the moment to say so
    }
  }
  return rates;
}

}  // namespace headrace
