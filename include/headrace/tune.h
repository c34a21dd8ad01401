// Finds how optimizer states are best swapped on this machine: runs the engine's own step (reads, update,
// writes, commit) at many points under a memory limit and a time budget, and says how near the best one is to
// what the drive and the processor allow. No point is proposed that was not run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/config.h"
#include "headrace/engine.h"

namespace headrace {

// What is tuned. The values are those of the settings of the same names; the defaults are a run's.
struct SwapPoint {
  Bytes block_bytes = 3 << 20;    // one optimizer block: its states take at most so much
  std::uint32_t buffers = 8;      // blocks in memory: read ahead, updated, written behind
  std::uint32_t queue_depth = 0;  // 0: the engine's choice for the drive
  Bytes request_bytes = 0;        // likewise
  IoKind io = IoKind::automatic;
  std::uint32_t placement = 0;  // of TuneReport::placements
  bool operator==(const SwapPoint&) const = default;
};
std::string text_of(const SwapPoint& point);  // "block 3MiB, 8 buffers, depth auto, requests 1MiB, io_uring"
std::string depth_text(const SwapPoint& point);    // "32", "auto"
std::string request_text(const SwapPoint& point);  // "1MiB", "auto"

// Over which of the swap paths the blocks lie.
struct SwapPlacement {
  std::string name;                  // "all by rate", "all alike", "parity 1", or the one path
  std::vector<std::uint32_t> paths;  // of TuneOptions::swap_paths
  std::vector<double> rates;         // of each, as --swap-path-rates; empty with one path and with parity
};

struct TuneOptions {
  std::vector<std::string> swap_paths;  // existing folders
  std::uint32_t parity = 0;             // swap paths that may be lost; then all are used
  double seconds = 60;
  Bytes host_memory_bytes = Bytes{1} << 30;  // most that a point may take
  std::uint64_t parameters = 0;              // of the run that is planned; 0: as many as a trial has
  Durability durability = Durability::step;
  StateFormat states;   // of the run
  double momentum = 0;  // of the run's SGD, where states.momentum
  int threads = 0;      // of the update, where the user has chosen; 0: this machine's
};

// One sample of a point, or why there is none.
struct TuneTrial {
  SwapPoint point{};
  std::string placement{};       // its name, where there are several
  std::string stage{};           // "coarse", "again", "fine", "confirm"
  double over_defaults = 0;      // its rate to that of the defaults' sample before it; 0: there was none
  double step_seconds = 0;       // of `parameters`
  std::uint64_t parameters = 0;  // in this trial
  double bytes_per_second = 0;   // read and written together
  double parameters_per_second = 0;
  std::string failure{};  // empty: it ran
};

// The rate of the best point to that of another, from samples in turns: above 1 the best is faster.
struct TuneComparison {
  SwapPoint with{};
  int pairs = 0;
  double ratio = 0, deviation = 0;  // median over the pairs, median absolute deviation
  double least = 0, most = 0;       // of the pairs
};

// What the best point reaches, and what it could: medians over rounds that alternate the real step, the same
// with an update that changes nothing, and plain reads and writes of a file. A share is of the rate that
// would be possible: 1 is all of it.
struct TuneCeiling {
  int rounds = 0;
  std::uint64_t blocks = 0;
  double step_seconds = 0, null_step_seconds = 0;
  double compute_seconds = 0;       // of one block whose states are in memory
  double closed_form_seconds = 0;   // from the null step and the compute
  double share = 0, deviation = 0;  // of the closed form: of the paired ratios
  // Alone; 0: not measured, for want of memory beside the point's buffers.
  double read_bytes_per_second = 0, write_bytes_per_second = 0;
  double alone_seconds = 0;  // the closed form on one shared path from these two; 0 without them
  double over_alone() const { return alone_seconds > 0 ? alone_seconds / step_seconds : 0; }
};

struct TuneReport {
  std::vector<SwapPlacement> placements;
  std::vector<TuneTrial> trials;
  std::optional<SwapPoint> best;  // none: no trial ran
  std::optional<TuneComparison> over_runner_up;
  bool for_memory = false;                      // as fast as the runner-up within the noise, and smaller
  SwapPoint defaults;                           // of a run, as they are on this machine
  std::optional<TuneComparison> over_defaults;  // none: the best is the defaults, or they did not run
  std::string without_defaults;                 // why they did not run
  std::vector<std::string> untried;             // what no trial has varied, for want of time, space or memory
  double drift = 0;  // of the defaults' rate from sample to sample: the largest to the least; 0: no two
  std::optional<TuneCeiling> ceiling;
  std::uint64_t trial_parameters = 0, parameters = 0;  // predicted for the second
  double step_seconds = 0;                             // predicted
  Bytes written_bytes_a_step = 0;                      // of `parameters`, parity included, to all paths
  Bytes written_bytes = 0;                             // by the tuning, as the kernel counts; 0: not known
  Bytes memory_bytes = 0, peak_rss_bytes = 0;          // of the best point's buffers; of this process
  double seconds = 0;
  bool stopped = false;
};

// Called on the thread that tunes. `seconds_left` of TuneOptions::seconds.
struct TuneControl {
  std::function<bool()> stop_requested;  // asked between steps
  // A part of the tuning: the stages of the search, and "ceiling" after them.
  std::function<void(std::string_view stage, double seconds_left)> stage_began;
  std::function<void(const SwapPoint&, double seconds_left)> trial_began;
  std::function<void(const TuneTrial&)> trial_ended;
  std::function<void(const std::string&)> note;
};

// Blocks for about options.seconds. Writes into a folder of its own in each swap path, which is gone
// afterwards; what a killed process left there is removed first. Throws UsageError when another process tunes
// there.
TuneReport tune_swap(const TuneOptions& options, const TuneControl& control);

// What the predicted seconds of a step are, in words for the user.
inline constexpr std::string_view predicted_scope =
    "from the last gradient to the commit; without forward, backward, traffic between ranks, and what a "
    "model beside it takes of memory and cores";

// A step writes no more than the tuning did: a drive's fast cache, if there is one, is in both.
bool within_what_was_written(const TuneReport& report);

// Bytes written in a day of steps one behind the other.
double written_bytes_a_day(const TuneReport& report);
// A configuration file for `train --config`: the best point and where the states go. Empty without a best
// point.
std::string config_fragment(const TuneReport& report, const TuneOptions& options);
// The report as `--json` writes it (DESIGN section 10). `endurance_bytes`: what the drive may be written; 0:
// not known.
std::string tune_json(const TuneReport& report, const TuneOptions& options, double endurance_bytes);

}  // namespace headrace
