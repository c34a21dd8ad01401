// Question: how fast do blocks move between a drive and memory through the engine, by operation, access, size
// and depth? Ceiling: of one path, the best case of the same operation; of all paths at once, the sum of what
// each gives alone. Time: [Note: time budget].
#include <algorithm>
#include <map>

#include "headrace/errors.h"
#include "headrace/statistics.h"
#include "src/bench/nvme_rig.h"
#include "src/bench/path_failure.h"

namespace headrace {
namespace {

using namespace literals;

constexpr Bytes usual_file_bytes = 4_GiB;
constexpr double first_guess_of_fixed_seconds = 2e-3;

// Left for the end: a file of gigabytes is given back.
double closing_seconds(double seconds) {
  return std::min(0.04 * seconds, 0.8);
}

struct Case {
  BlockWork work;
  FileSet files;
  std::string name, path;
  std::vector<double> rates;
  LatencyHistogram latencies;
  std::uint64_t blocks = 0;
  Bytes moved_bytes = 0, read_bytes = 0;
  bool given_up = false;  // a path has failed
  std::optional<Bytes> from_storage = Bytes{0};
  double cpu_seconds = 0;
};

class NvmeTable {
 public:
  NvmeTable(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options, const NvmeControl& control)
      : options_(options),
        control_(control),
        budget_(options.seconds - closing_seconds(options.seconds)),
        rig_(io, host, options, control, usual_file_bytes) {}

  NvmeReport run() {
    if (rig_.prepare({.seconds = preparation_share * options_.seconds, .most_seconds = options_.seconds},
                     budget_)) {
      make_cases();
      measure();
    }
    return report();
  }

 private:
  void make_cases();
  void add_case(const BlockWork& work, FileSet files, const std::string& path);
  void measure();
  double fixed_seconds(const Case& one) const;
  void take_sample(Case& one, double seconds);
  void give_up(const PathFailure& failure, SampleSchedule& schedule);
  NvmeReport report() const;
  NvmeResult result_of(const Case& one) const;
  double seconds_of_a_round() const;
  void add_notes(NvmeReport& report) const;

  const NvmeBenchOptions& options_;
  const NvmeControl& control_;
  TimeBudget budget_;
  NvmeRig rig_;
  std::vector<Case> cases_;
  std::vector<std::string> too_large_;  // cases that the file cannot hold
  std::vector<std::string> failures_;
};

void NvmeTable::make_cases() {
  const FileSet all = rig_.all_files();
  for (const BlockWork& work : nvme_works(options_)) {
    if (least_file_bytes(work.block_bytes, work.depth) > rig_.smallest_file_bytes()) {
      too_large_.push_back(text_of(work));
      continue;
    }
    for (const std::size_t f : all) add_case(work, {f}, options_.paths[f]);
    if (all.size() > 1) add_case(work, all, "");
  }
  if (cases_.empty())
    throw too_little_written("--seconds", rig_.smallest_file_bytes(), rig_.longest_preparation(),
                             least_file_bytes(options_.blocks.front(), options_.depths.front()),
                             preparation_share);
}

void NvmeTable::add_case(const BlockWork& work, FileSet files, const std::string& path) {
  Case one;
  one.work = work;
  one.files = std::move(files);
  one.name = text_of(work);
  one.path = path;
  if (options_.paths.size() > 1) one.name += path.empty() ? ", all paths" : fmt::format(", {}", path);
  cases_.push_back(std::move(one));
}

void NvmeTable::measure() {
  std::vector<double> fixed;
  for (const Case& one : cases_) fixed.push_back(fixed_seconds(one));
  SampleSchedule schedule(std::move(fixed));
  while (const auto sample = schedule.next(budget_.left())) {
    Case& one = cases_[sample->index];
    if (control_.progress) control_.progress(std::min(budget_.spent() / budget_.seconds(), 1.0), one.name);
    const double before = budget_.spent();
    try {
      take_sample(one, sample->seconds);
      schedule.took(*sample, budget_.spent() - before);
    } catch (const PathFailure& failure) {
      give_up(failure, schedule);
    }
    if (rig_.stop_requested()) return;
  }
}

double NvmeTable::fixed_seconds(const Case& one) const {
  return first_guess_of_fixed_seconds +
         static_cast<double>(one.work.in_flight_bytes()) / rig_.slowest_write_rate();
}

// What the path gave until then stays, and so does what the others give alone.
void NvmeTable::give_up(const PathFailure& failure, SampleSchedule& schedule) {
  failures_.emplace_back(failure.what());
  if (control_.say)
    control_.say(fmt::format("{} has failed: its cases end here", options_.paths[failure.file()]));
  for (std::size_t c = 0; c < cases_.size(); ++c) {
    const FileSet& files = cases_[c].files;
    if (std::find(files.begin(), files.end(), failure.file()) == files.end()) continue;
    cases_[c].given_up = true;
    schedule.leave_out(c);
  }
}

void NvmeTable::take_sample(Case& one, double seconds) {
  std::vector<std::optional<TimeBudget>> time(options_.paths.size());  // from the first block that ends
  const TimeBudget sample(seconds);
  const Bytes others = one.work.in_flight_bytes() - one.work.block_bytes;  // beside a block that has ended
  const RigSample taken = rig_.run(one.files, one.work, [&](std::size_t file, Bytes moved) {
    if (!time[file]) time[file].emplace(seconds);
    return time[file]->left() > 0 && budget_.left() > drain_seconds(others, moved, sample.spent());
  });
  rig_.check_written(one.files);
  one.rates.push_back(taken.rate());
  for (const StreamSample& stream : taken.streams) {
    one.latencies.add(stream.latencies);
    one.blocks += stream.blocks;
  }
  one.moved_bytes += taken.bytes();
  one.read_bytes += taken.read_bytes();
  if (taken.from_storage && one.from_storage) *one.from_storage += *taken.from_storage;
  if (!taken.from_storage) one.from_storage = std::nullopt;
  one.cpu_seconds += taken.cpu_seconds;
}

NvmeResult NvmeTable::result_of(const Case& one) const {
  const double value = median(one.rates);
  std::optional<double> from_storage;
  if (one.from_storage && one.read_bytes > 0)
    from_storage = static_cast<double>(*one.from_storage) / static_cast<double>(one.read_bytes);
  return {.group = fmt::format("{} {}", name_of(one.work.access), name_of(one.work.operation)),
          .name = one.name,
          .path = one.path,
          .operation = one.work.operation,
          .access = one.work.access,
          .block_bytes = one.work.block_bytes,
          .depth = one.work.depth,
          .in_flight = rig_.blocks_in_flight(one.files, one.work),
          .read_share = one.work.share_of_reads(),
          .value = value,
          .deviation = median_deviation(one.rates),
          .operations_per_second = value * 1e9 / static_cast<double>(one.work.block_bytes),
          .latency_median = one.latencies.quantile(0.5),
          .latency_p99 = one.latencies.quantile(0.99),
          .cpu_seconds_per_gb = one.cpu_seconds / (static_cast<double>(one.moved_bytes) * 1e-9),
          .ceiling = std::nullopt,
          .source = rig_.source(one.files, value, from_storage),
          .rounds = static_cast<int>(one.rates.size()),
          .moved_bytes = one.moved_bytes};
}

// Of one path: the best of the same operation. Of all: the sum of the same case's.
void add_ceilings(std::vector<NvmeResult>& results) {
  std::map<std::pair<std::string, NvmeOperation>, double> best;
  for (const NvmeResult& result : results)
    best[{result.path, result.operation}] = std::max(best[{result.path, result.operation}], result.value);
  for (NvmeResult& result : results) {
    if (!result.path.empty()) {
      result.ceiling = best[{result.path, result.operation}];
      continue;
    }
    double sum = 0;
    for (const NvmeResult& other : results)
      if (!other.path.empty() && other.group == result.group && other.block_bytes == result.block_bytes &&
          other.depth == result.depth)
        sum += other.value;
    if (sum > 0) result.ceiling = sum;
  }
}

NvmeReport NvmeTable::report() const {
  NvmeReport report = rig_.report(budget_);
  for (const Case& one : cases_)
    if (!one.rates.empty()) report.results.push_back(result_of(one));
  if (report.results.empty() && !failures_.empty()) throw Error(failures_.front());
  if (report.results.empty() && !report.stopped) report.seconds_needed = seconds_of_a_round();
  add_ceilings(report.results);
  report.failures = failures_;
  add_notes(report);
  return report;
}

// With its preparation, and the end.
double NvmeTable::seconds_of_a_round() const {
  double seconds = rig_.longest_preparation();
  for (const Case& one : cases_) seconds += fixed_seconds(one) + usual_sample_seconds;
  return seconds_to_give(std::max(seconds, options_.seconds) + closing_seconds(seconds));
}

void NvmeTable::add_notes(NvmeReport& report) const {
  std::vector<std::string>& notes = report.notes;
  notes.insert(notes.end(), failures_.begin(), failures_.end());
  for (const std::string& name : too_large_)
    notes.push_back(fmt::format("left out: {}, more in flight than the file of {} holds", name,
                                format_bytes(rig_.smallest_file_bytes())));
  for (const Case& one : cases_)
    if (const std::string note = rig_.in_flight_note(one.files, one.work);
        !note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end())
      notes.push_back(note);
  const auto one_round = [](const NvmeResult& result) { return result.rounds == 1; };
  if (!report.stopped && std::any_of(report.results.begin(), report.results.end(), one_round))
    notes.push_back(one_round_note(options_.seconds));
  const auto left_out = std::count_if(cases_.begin(), cases_.end(),
                                      [](const Case& one) { return one.rates.empty() && !one.given_up; });
  if (left_out > 0 && report.stopped)
    notes.push_back(fmt::format("stopped before {} of {} cases had a result", left_out, cases_.size()));
  if (left_out > 0 && !report.stopped)
    notes.push_back(
        fmt::format("left out: {} of {} cases, for which {:g} s were too short: give more --seconds, or "
                    "fewer --block and --depth",
                    left_out, cases_.size(), options_.seconds));
}

}  // namespace

NvmeReport bench_nvme(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options,
                      const NvmeControl& control) {
  return NvmeTable(io, host, options, control).run();
}

}  // namespace headrace
