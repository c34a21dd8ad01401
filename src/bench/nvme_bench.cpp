// Question: how fast do blocks move between a drive and memory through the engine, by operation, access, size
// and depth? Ceiling: of one path, the best case of the same operation; of all paths at once, the sum of what
// each gives alone. Time: [Note: time budget].
#include <algorithm>
#include <map>

#include "headrace/errors.h"
#include "src/bench/nvme_rig.h"
#include "src/bench/rounds.h"

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
    if (rig_.prepare(preparation_share * options_.seconds, budget_)) {
      make_cases();
      measure();
    }
    return report();
  }

 private:
  void make_cases();
  void add_case(const BlockWork& work, FileSet files, const std::string& path);
  void measure();
  void take_sample(Case& one, double seconds);
  NvmeReport report() const;
  NvmeResult result_of(const Case& one) const;

  const NvmeBenchOptions& options_;
  const NvmeControl& control_;
  TimeBudget budget_;
  NvmeRig rig_;
  std::vector<Case> cases_;
  std::vector<std::string> too_large_;  // cases that the file cannot hold
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
    throw DoesNotFit(
        fmt::format("only {} of a file were written in {:.1f} s, a fifth of the time: too few for the blocks "
                    "in flight. Give more --seconds, or smaller --block or --depth.",
                    format_bytes(rig_.smallest_file_bytes()), preparation_share * options_.seconds));
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
  for (const Case& one : cases_)
    fixed.push_back(first_guess_of_fixed_seconds +
                    static_cast<double>(one.work.in_flight_bytes()) / rig_.slowest_write_rate());
  SampleSchedule schedule(std::move(fixed));
  while (const auto sample = schedule.next(budget_.left())) {
    Case& one = cases_[sample->index];
    if (control_.progress) control_.progress(std::min(budget_.spent() / budget_.seconds(), 1.0), one.name);
    const double before = budget_.spent();
    take_sample(one, sample->seconds);
    schedule.took(*sample, budget_.spent() - before);
    if (rig_.stop_requested()) return;
  }
}

void NvmeTable::take_sample(Case& one, double seconds) {
  std::vector<std::optional<TimeBudget>> time(options_.paths.size());  // from the first block that ends
  const RigSample taken = rig_.run(one.files, one.work, [&](std::size_t file, Bytes) {
    if (!time[file]) time[file].emplace(seconds);
    return time[file]->left() > 0;
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
  std::size_t no_time = 0;
  for (const Case& one : cases_)
    if (one.rates.empty())
      ++no_time;
    else
      report.results.push_back(result_of(one));
  add_ceilings(report.results);
  for (const std::string& name : too_large_)
    report.notes.push_back(fmt::format("left out: {}, more in flight than the file of {} holds", name,
                                       format_bytes(rig_.smallest_file_bytes())));
  const auto one_round = [](const NvmeResult& result) { return result.rounds == 1; };
  if (!report.stopped && std::any_of(report.results.begin(), report.results.end(), one_round))
    report.notes.push_back(one_round_note(options_.seconds));
  if (no_time > 0 && !report.stopped)
    report.notes.push_back(
        fmt::format("left out: {} of {} cases, for which {:g} s were too short: give more --seconds, or "
                    "fewer --block and --depth",
                    no_time, cases_.size(), options_.seconds));
  return report;
}

}  // namespace

NvmeReport bench_nvme(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options,
                      const NvmeControl& control) {
  return NvmeTable(io, host, options, control).run();
}

}  // namespace headrace
