#include "headrace/tune.h"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "headrace/bench.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/folders.h"
#include "headrace/machine_files.h"
#include "headrace/optimizer_blocks.h"
#include "headrace/train.h"
#include "src/tune/ceiling.h"
#include "src/tune/closed_form.h"
#include "src/tune/failures.h"
#include "src/tune/report_facts.h"
#include "src/tune/resident_update.h"
#include "src/tune/search_loop.h"
#include "src/tune/trials.h"
#include "src/tune/tune_space.h"

namespace headrace {
namespace tune {
namespace {

using Clock = std::chrono::steady_clock;

// Shares of the time: until here the drive's rates, then the search, then the ceiling.
constexpr double probe_share = 0.05, search_share = 0.80;
constexpr double closing_seconds = 0.3;  // removing files
constexpr double least_steps = 4;        // a round of the ceiling, where the store is made again
constexpr Bytes probe_bytes = Bytes{256} << 20;

bool has_io_uring() {
  try {
    (void)make_uring_engine({});
    return true;
  } catch (const Error&) {
    return false;
  }
}

Bytes free_bytes(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) throw IoError("statvfs", path, 0, 0, errno);
  return static_cast<Bytes>(status.f_bavail) * status.f_frsize;
}

dev_t file_system_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw IoError("stat", path, 0, 0, errno);
  return status.st_dev;
}

// By the kernel's count; 0 where it has none.
Bytes written_by_this_process() {
  return MachineFiles().count_of("/proc/self/io", "write_bytes").value_or(0);
}

class Tuning {
 public:
  Tuning(const TuneOptions& options, const TuneControl& control)
      : options_(options), control_(control), files_(options.swap_paths) {}

  TuneReport run() {
    size_trials();
    search();
    if (report_.best && !stopped()) measure_best();
    predict();
    report_.untried = unvaried(report_.trials);
    report_.drift = drift_of(report_.defaults, report_.trials);
    report_.written_bytes = written_by_this_process() - written_before_;
    report_.peak_rss_bytes = peak_rss_bytes();
    report_.stopped = stopped();
    report_.seconds = now();
    return std::move(report_);
  }

 private:
  double now() const { return seconds_since(start_); }
  double left() const { return std::max(0.0, options_.seconds - now()); }
  bool stopped() const { return control_.stop_requested(); }

  // The rate of each path, and from them the size of a trial.
  void size_trials() {
    Bytes available = free_bytes(options_.swap_paths.front());
    for (const std::string& path : options_.swap_paths) available = std::min(available, free_bytes(path));
    constexpr DriveRates any = {1e9, 1e9};
    if (trial_parameters(any, options_.seconds, available, options_.parameters, options_.states) == 0)
      throw DoesNotFit(
          fmt::format("{} has {} free, too little for the smallest trial. Free some space, or give a "
                      "--swap-path on a larger disk.",
                      fmt::join(options_.swap_paths, ", "), format_bytes(available)));
    const std::vector<std::string> probes = files_.paths_of("probe");
    const double most = options_.seconds * probe_share / (3 * static_cast<double>(probes.size()));
    const auto buffers = raw_buffers(SwapPoint{}, options_.host_memory_bytes);
    if (!buffers)
      throw DoesNotFit(fmt::format("{} of host memory are too little to tune with.",
                                   format_bytes(options_.host_memory_bytes)));
    std::vector<double> rates;
    DriveRates together;
    for (std::size_t p = 0; p < probes.size(); ++p) {
      RawFile file({probes[p]}, {}, SwapPoint{}, *buffers, std::min(probe_bytes, available / 4), most);
      const double read = file.read(most).bytes_per_second(), write = file.write(most).bytes_per_second();
      rates.push_back(2 / (1 / read + 1 / write));
      together.read_bytes_per_second += read, together.write_bytes_per_second += write;
      control_.note(
          fmt::format("{}: reads {:.2f} GB/s, writes {:.2f} GB/s, each alone, {} blocks of {} in "
                      "flight, just after their first write",
                      options_.swap_paths[p], read * 1e-9, write * 1e-9, buffers->count,
                      size_text(buffers->block_bytes)));
    }
    files_.remove("probe");
    tell_of_shared_file_systems();
    tell_of_memory();
    report_.placements = make_placements(options_.swap_paths, rates, options_.parity);
    report_.trial_parameters =
        trial_parameters(together, options_.seconds, available, options_.parameters, options_.states);
    control_.note(fmt::format(
        "sized by these rates and the space there, a trial is a few steps of {:.1f} M parameters "
        "({} of states: {})",
        static_cast<double>(report_.trial_parameters) * 1e-6,
        format_bytes(state_bytes(options_.states, report_.trial_parameters)), text_of(options_.states)));
  }

  void tell_of_shared_file_systems() const {
    std::map<dev_t, std::vector<std::string>> file_systems;
    for (const std::string& path : options_.swap_paths) file_systems[file_system_of(path)].push_back(path);
    for (const auto& [device, paths] : file_systems)
      if (paths.size() > 1)
        control_.note(fmt::format(
            "{} are on one file system: together they are no faster than its drive, and lost together",
            fmt::join(paths, ", ")));
  }

  void tell_of_memory() const {
    for (const std::string& path : options_.swap_paths)
      if (lies_in_memory(path))
        control_.note(
            fmt::format("{} is on a file system in memory: no drive is measured, and what is kept "
                        "there takes host memory",
                        path));
  }

  void search() {
    space_ = make_tune_space(options_.host_memory_bytes, report_.trial_parameters, has_io_uring(),
                             report_.placements, options_.parity, options_.states);
    report_.defaults = space_.usual();
    TuneSearch search(space_.grid(), space_.start());
    trials_.emplace(options_, report_.placements, files_, report_.trial_parameters, options_.seconds / 120);
    const double deadline = options_.seconds * search_share;
    search_until(search, deadline,
                 {.now = [this] { return now(); },
                  .run =
                      [&](const GridPoint& at, double until) {
                        return trials_->run(space_.point(at), [&] { return stopped() || now() > until; });
                      },
                  .stop_requested = [this] { return stopped(); },
                  .trial_began =
                      [this](const TuneSearch::Trial& trial) {
                        begin_stage(std::string(name_of(trial.stage)));
                        control_.trial_began(space_.point(trial.point), left());
                      },
                  .trial_ended = [this](const TuneTrial& trial) { record(trial); }});
    decide(search);
  }

  void begin_stage(const std::string& stage) {
    if (stage == stage_) return;
    stage_ = stage;
    control_.stage_began(stage, left());
  }

  void record(TuneTrial trial) {
    if (report_.placements.size() > 1) trial.placement = report_.placements[trial.point.placement].name;
    if (trial.failure.empty() && trial.point == report_.defaults)
      defaults_rate_ = trial.parameters_per_second;
    if (defaults_rate_ > 0) trial.over_defaults = trial.parameters_per_second / defaults_rate_;
    report_.trials.push_back(std::move(trial));
    control_.trial_ended(report_.trials.back());
  }

  void decide(const TuneSearch& search) {
    const auto decision = search.decision();
    if (!decision) return;
    report_.best = space_.point(decision->best);
    report_.memory_bytes = space_.memory_of(*report_.best);
    report_.for_memory = decision->for_memory;
    const auto comparison = [this](const TuneSearch::Comparison& with) {
      return TuneComparison{.with = space_.point(with.with),
                            .pairs = with.pairs,
                            .ratio = with.ratio,
                            .deviation = with.deviation,
                            .least = with.least,
                            .most = with.most};
    };
    if (decision->runner_up) report_.over_runner_up = comparison(*decision->runner_up);
    if (decision->usual) report_.over_defaults = comparison(*decision->usual);
    if (*report_.best != report_.defaults && !report_.over_defaults)
      report_.without_defaults = why_without_defaults();
  }

  std::string why_without_defaults() const {
    if (!space_.allowed(report_.defaults))
      return fmt::format("they take {}, and --host-memory is {}",
                         format_bytes(space_.memory_of(report_.defaults)),
                         format_bytes(options_.host_memory_bytes));
    for (const TuneTrial& trial : report_.trials)
      if (trial.point == report_.defaults && !trial.failure.empty()) return trial.failure;
    return "there was no time for them";
  }

  // Without it the search's result stands.
  void measure_best() {
    if (const auto failure = failure_of([this] { find_ceiling(*report_.best); }))
      control_.note(fmt::format("the distance from the ceiling could not be measured: {}", failure->text));
  }

  void find_ceiling(const SwapPoint& best) {
    const double step = slowest_step(best), deadline = options_.seconds - closing_seconds;
    if (now() + least_steps * step > deadline) {
      control_.note(
          "no time is left to measure how far the best is from what the drive allows: give more --seconds");
      return;
    }
    begin_stage("ceiling");
    const double compute =
        resident_update_seconds(options_.states, block_numel(best.block_bytes, options_.states),
                                std::min(0.5, options_.seconds / 100), options_.host_memory_bytes);
    const std::unique_ptr<SwapPipeline> pipeline = trials_->open(best);
    report_.memory_bytes = pipeline->host_bytes();
    std::optional<RawFile> file;
    if (const auto buffers = raw_buffers(best, options_.host_memory_bytes - pipeline->host_bytes()))
      file.emplace(trials_->paths_of(best, "plain"), report_.placements[best.placement].rates, best, *buffers,
                   plain_bytes(), options_.seconds * probe_share / 2);
    else
      control_.note("beside the best point's buffers --host-memory has no room for plain reads and writes");
    const double plain = file ? plain_seconds(deadline - now(), step) : 0;
    const double written_a_byte = static_cast<double>(written_by(best, report_.trial_parameters)) /
                                  static_cast<double>(state_bytes(options_.states, report_.trial_parameters));
    const TuneCeiling ceiling =
        measure_ceiling(*pipeline, file ? &*file : nullptr, best,
                        {.compute_seconds = compute,
                         .plain_seconds = plain,
                         .written_a_byte = written_a_byte,
                         .over = [&] { return now() + round_seconds(step, plain) > deadline; },
                         .stop = [&] { return stopped() || now() > deadline * 1.1; }});
    if (ceiling.rounds > 0) report_.ceiling = ceiling;
    if (options_.parameters > report_.trial_parameters) small_step_ = trials_->time_small_step(best);
  }

  Bytes plain_bytes() const {
    Bytes bytes = probe_bytes;
    for (const std::string& path : options_.swap_paths) bytes = std::min(bytes, free_bytes(path) / 4);
    return bytes;
  }

  double slowest_step(const SwapPoint& point) const {
    double slowest = 0;
    for (const TuneTrial& trial : report_.trials)
      if (trial.point == point) slowest = std::max(slowest, trial.step_seconds);
    return slowest;
  }

  Bytes written_by(const SwapPoint& point, std::uint64_t parameters) const {
    return written_bytes_a_step(parameters, report_.placements[point.placement].paths.size(), options_.parity,
                                options_.states);
  }

  void predict() {
    if (!report_.best) return;
    double seconds = report_.ceiling ? report_.ceiling->step_seconds : 0;
    if (seconds == 0)
      for (const TuneTrial& trial : report_.trials)  // the last one that ran
        if (trial.point == *report_.best && trial.failure.empty()) seconds = trial.step_seconds;
    report_.parameters = options_.parameters > 0 ? options_.parameters : report_.trial_parameters;
    report_.step_seconds = step_of(report_.parameters, {report_.trial_parameters, seconds}, small_step_);
    report_.written_bytes_a_step = written_by(*report_.best, report_.parameters);
  }

  const TuneOptions& options_;
  const TuneControl& control_;
  const Clock::time_point start_ = Clock::now();
  TuneFiles files_;
  TuneSpace space_;
  std::optional<Trials> trials_;
  std::string stage_;
  const Bytes written_before_ = written_by_this_process();
  TimedStep small_step_;      // of the best point
  double defaults_rate_ = 0;  // parameters a second of their last sample
  TuneReport report_;
};

}  // namespace
}  // namespace tune

TuneReport tune_swap(const TuneOptions& options, const TuneControl& control) {
  return tune::Tuning(options, control).run();
}

}  // namespace headrace
