// Question: at what rate does a drive take writes once its fast cache is full? Every path at once, in file
// order, with what the options' last block size and depth keep in flight. A path that fails ends them all:
// the intervals before are reported.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/bench/nvme_rig.h"
#include "src/bench/path_failure.h"

namespace headrace {
namespace {

using namespace literals;

constexpr Bytes usual_file_bytes = 16_GiB;  // a range that is soon written again would stay in the cache
constexpr double preparation_share_of_writing = 0.25;
constexpr double most_intervals = 60, least_interval_seconds = 0.25;

double interval_of(double seconds) {
  return std::max({seconds / most_intervals, std::min(1.0, seconds / 12), least_interval_seconds});
}

// Bytes that moved in each interval of a stream; filled by the stream's thread.
class Intervals {
 public:
  Intervals(double seconds, std::size_t count) : seconds_(seconds), bytes_(count) {}
  // Returns the number of the interval at `time`.
  std::size_t add(double time, Bytes moved) {
    const auto index = static_cast<std::size_t>(time / seconds_);
    if (index < bytes_.size()) bytes_[index] += moved - moved_;
    moved_ = moved;
    return index;
  }
  double rate(std::size_t index) const { return static_cast<double>(bytes_[index]) / seconds_ * 1e-9; }
  std::size_t count() const { return bytes_.size(); }

 private:
  double seconds_;
  std::vector<Bytes> bytes_;
  Bytes moved_ = 0;
};

class Sustained {
 public:
  Sustained(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options, const NvmeControl& control)
      : options_(options),
        control_(control),
        work_{.operation = NvmeOperation::write,
              .access = NvmeAccess::sequential,
              .block_bytes = options.blocks.back(),
              .depth = options.depths.back()},
        preparation_seconds_(preparation_share_of_writing * options.sustained_seconds),
        budget_(preparation_seconds_ + options.sustained_seconds),
        interval_(interval_of(options.sustained_seconds)),
        rig_(io, host, options, control, usual_file_bytes) {}

  NvmeSustainedReport run() {
    const Bytes least = least_file_bytes(work_.block_bytes, work_.depth);
    if (rig_.prepare({.seconds = preparation_seconds_,
                      .most_seconds = options_.sustained_seconds,
                      .least_bytes = least},
                     budget_)) {
      if (rig_.smallest_file_bytes() < least)
        throw too_little_written("--sustained", rig_.smallest_file_bytes(), rig_.longest_preparation(), least,
                                 1);
      write();
    }
    NvmeSustainedReport report{.run = rig_.report(budget_), .results = results()};
    add_notes(report);
    return report;
  }

 private:
  void add_notes(NvmeSustainedReport& report) const {
    report.run.failures = failures_;
    report.run.notes.insert(report.run.notes.end(), failures_.begin(), failures_.end());
    const std::string note = rig_.in_flight_note(rig_.all_files(), work_);
    if (!note.empty()) report.run.notes.push_back(note);
    if (options_.paths.size() > 1) report.run.notes.emplace_back("all paths are written at the same time");
    report.run.notes.emplace_back("the file was written once before: that too has filled the drive's cache");
  }

  void write();
  void tell(std::size_t file, double time, std::size_t interval);
  std::vector<NvmeSustained> results() const;
  NvmeSustained result_of(const std::vector<double>& rates, const FileSet& files,
                          const std::string& path) const;
  std::size_t whole_intervals() const {
    return static_cast<std::size_t>(written_seconds_ / interval_ + 1e-6);
  }

  const NvmeBenchOptions& options_;
  const NvmeControl& control_;
  const BlockWork work_;
  const double preparation_seconds_;
  TimeBudget budget_;
  const double interval_;
  NvmeRig rig_;
  std::vector<Intervals> intervals_;  // by file
  double written_seconds_ = 0;
  std::vector<std::string> failures_;
};

void Sustained::write() {
  const auto count = static_cast<std::size_t>(std::ceil(options_.sustained_seconds / interval_ - 1e-6));
  const FileSet files = rig_.all_files();
  intervals_.assign(files.size(), Intervals(interval_, count));
  const TimeBudget writing(options_.sustained_seconds);
  std::vector<std::size_t> last(files.size());  // interval, by file
  std::vector<double> seen(files.size());       // seconds that are known, by file
  const auto go_on = [&](std::size_t file, Bytes moved) {
    const double time = seen[file] = writing.spent();
    const std::size_t interval = intervals_[file].add(time, moved);
    if (std::exchange(last[file], interval) != interval) rig_.flush_buffered(file);
    if (file == 0) tell(file, time, interval);
    return time < options_.sustained_seconds;
  };
  try {
    rig_.run(files, work_, go_on);
    written_seconds_ = std::min(writing.spent(), options_.sustained_seconds);
    rig_.check_written(files);
  } catch (const PathFailure& failure) {
    written_seconds_ = std::min(*std::min_element(seen.begin(), seen.end()), options_.sustained_seconds);
    if (whole_intervals() == 0) throw;
    failures_.emplace_back(failure.what());
  }
}

void Sustained::tell(std::size_t file, double time, std::size_t interval) {
  if (!control_.progress) return;
  const double last =
      interval > 0 && interval <= intervals_[file].count() ? intervals_[file].rate(interval - 1) : 0;
  control_.progress(std::min((preparation_seconds_ + time) / budget_.seconds(), 1.0),
                    interval > 0 ? fmt::format("{}, {:.2f} GB/s", text_of(work_), last) : text_of(work_));
}

NvmeSustained Sustained::result_of(const std::vector<double>& rates, const FileSet& files,
                                   const std::string& path) const {
  const SustainedSummary summary = sustained_summary(rates);
  std::string name = fmt::format("sustained write {} depth {}", size_text(work_.block_bytes), work_.depth);
  if (options_.paths.size() > 1) name += path.empty() ? ", all paths" : fmt::format(", {}", path);
  return {.name = name,
          .path = path,
          .block_bytes = work_.block_bytes,
          .depth = work_.depth,
          .in_flight = rig_.blocks_in_flight(rig_.all_files(), work_),
          .interval_seconds = interval_,
          .rates = rates,
          .first = summary.first,
          .steady = summary.steady,
          .settled = summary.settled,
          .source = rig_.source(files, summary.steady, std::nullopt)};
}

std::vector<NvmeSustained> Sustained::results() const {
  std::vector<NvmeSustained> results;
  if (intervals_.empty()) return results;
  const std::size_t whole = std::min(whole_intervals(), intervals_.front().count());
  if (whole == 0) return results;
  std::vector<double> sums(whole);
  for (std::size_t f = 0; f < intervals_.size(); ++f) {
    std::vector<double> rates;
    for (std::size_t i = 0; i < whole; ++i) {
      rates.push_back(intervals_[f].rate(i));
      sums[i] += rates.back();
    }
    results.push_back(result_of(rates, {f}, options_.paths[f]));
  }
  if (intervals_.size() > 1) results.push_back(result_of(sums, rig_.all_files(), ""));
  return results;
}

}  // namespace

NvmeSustainedReport bench_nvme_sustained(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options,
                                         const NvmeControl& control) {
  return Sustained(io, host, options, control).run();
}

}  // namespace headrace
