#include "src/cli/tune_screen.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "headrace/bench.h"

namespace headrace::cli {
namespace {

constexpr double terabyte = 1e12;

std::string_view meaning_of(std::string_view stage) {
  constexpr std::pair<std::string_view, std::string_view> meanings[] = {
      {"coarse", "the defaults, and other block sizes and buffers"},
      {"again", "the best of them once more, in turns"},
      {"fine", "the neighbours of the best"},
      {"confirm", "the best, the runner-up and the defaults in turns"},
      {"ceiling", "the best beside what the drive and the processor can do"}};
  for (const auto& [name, meaning] : meanings)
    if (name == stage) return meaning;
  return stage;
}

std::string heading() {
  return fmt::format(
      "Higher is better in every figure but the step's seconds: 1.10 x is 10% faster than the other, 95% is "
      "that part of\nwhat is possible. A row is the first sample of a point; x defaults is beside the "
      "defaults' last sample.\n"
      "{:>10} {:>7} {:>5} {:>8} {:<8} {:>9} {:>6} {:>11}\n",
      "block", "buffers", "depth", "request", "engine", "step", "GB/s", "x defaults");
}

std::string row_of(const TuneTrial& trial) {
  const SwapPoint& point = trial.point;
  std::string row = fmt::format("{:>10} {:>7} {:>5} {:>8} {:<8} ", size_text(point.block_bytes),
                                point.buffers, depth_text(point), request_text(point), name_of(point.io));
  const std::string placement = trial.placement.empty() ? "" : "  " + trial.placement;
  if (!trial.failure.empty()) return row + fmt::format("failed{}: {}\n", placement, trial.failure);
  const std::string ratio = trial.over_defaults > 0 ? fmt::format("{:.2f}", trial.over_defaults) : "-";
  return row + fmt::format("{:>7.3f} s {:>6.2f} {:>11}{}\n", trial.step_seconds,
                           trial.bytes_per_second * 1e-9, ratio, placement);
}

std::string weight_of(const TuneComparison& comparison) {
  if (comparison.pairs == 1) return "1 pair of samples";
  return fmt::format("{:.2f} to {:.2f} in {} pairs of samples", comparison.least, comparison.most,
                     comparison.pairs);
}

// Another tuning could come to the opposite.
bool unsure(const std::optional<TuneComparison>& comparison) {
  constexpr int enough = 3;
  return comparison && (comparison->pairs < enough || (comparison->least < 1 && comparison->most > 1));
}

std::string name_of(const SwapPoint& point, const TuneReport& report) {
  if (report.placements.size() == 1) return text_of(point);
  return fmt::format("{}, {}", text_of(point), report.placements[point.placement].name);
}

bool ran_alone(const TuneReport& report) {
  return std::all_of(report.trials.begin(), report.trials.end(), [&](const TuneTrial& trial) {
    return trial.point == *report.best || !trial.failure.empty();
  });
}

std::string over_defaults_text(const TuneReport& report) {
  if (*report.best == report.defaults)
    return fmt::format("  these are the defaults: {}\n",
                       ran_alone(report) ? "no other point ran" : "nothing was found to be faster");
  if (report.over_defaults)
    return fmt::format("  {:.2f} x the defaults ({}; {})\n", report.over_defaults->ratio,
                       name_of(report.defaults, report), weight_of(*report.over_defaults));
  return fmt::format("  not compared with the defaults ({}): {}\n", name_of(report.defaults, report),
                     report.without_defaults);
}

std::string doubts_text(const TuneReport& report) {
  constexpr double noticeable = 1.2;
  std::string text;
  if (!report.untried.empty())
    text += fmt::format("  only one {} was tried: more need --seconds, space or --host-memory\n",
                        fmt::join(report.untried, ", one "));
  if (report.drift > noticeable)
    text += fmt::format(
        "  the drive's rate drifted meanwhile: the defaults' best sample was {:.2f} x their "
        "worst, so compare no rows, only what ran in turns\n",
        report.drift);
  return text;
}

std::string comparisons_text(const TuneReport& report) {
  std::string text = over_defaults_text(report);
  if (!report.over_runner_up && ran_alone(report)) return text;
  if (!report.over_runner_up)
    return text +
           "  no time was left to try it in turns with the next best: give more --seconds to be sure\n";
  const bool said = report.over_defaults && report.over_runner_up->with == report.defaults;
  if (!said)
    text += fmt::format("  {:.2f} x the runner-up ({}; {}){}\n", report.over_runner_up->ratio,
                        name_of(report.over_runner_up->with, report), weight_of(*report.over_runner_up),
                        report.for_memory ? ": equal within the noise, and it takes less memory" : "");
  if (unsure(report.over_defaults) || unsure(report.over_runner_up))
    text += "  these pairs could have come out otherwise: give more --seconds to be sure\n";
  return text + doubts_text(report);
}

std::string rounds_text(const TuneCeiling& c) {
  constexpr double percent = 100;
  if (c.rounds == 1) return "1 round";
  return fmt::format("{} rounds, half of them within {:.0f}%", c.rounds, percent * c.deviation);
}

std::string ceiling_text(const TuneCeiling& c) {
  constexpr double percent = 100, milliseconds = 1e3;
  const double a_block = c.null_step_seconds / static_cast<double>(c.blocks);
  std::string text = fmt::format(
      "  {:.0f}% of what its own reads and writes allow: a step takes {:.3f} s, the same without the update "
      "{:.3f} s ({})\n",
      percent * c.share, c.step_seconds, c.null_step_seconds, rounds_text(c));
  if (c.share > 1) text += "  (more than all is the drive's noise)\n";
  if (c.alone_seconds > 0)
    text += fmt::format(
        "  {:.2f} x plain reads at {:.2f} GB/s and then plain writes at {:.2f} GB/s of as many bytes, both "
        "in "
        "turns with the steps\n",
        c.over_alone(), c.read_bytes_per_second * 1e-9, c.write_bytes_per_second * 1e-9);
  return text +
         fmt::format("  the {} is the limit: a block's read and write take {:.2f} ms, its update {:.2f} ms\n",
                     a_block > c.compute_seconds ? "drive" : "processor", a_block * milliseconds,
                     c.compute_seconds * milliseconds);
}

std::string placement_text(const TuneReport& report, const TuneOptions& options) {
  const SwapPlacement& placement = report.placements[report.best->placement];
  const std::size_t paths = placement.paths.size();
  if (options.parity > 0)
    return fmt::format(
        "  over all {} swap paths, of which any {} may be lost (--swap-parity {}): {:.2f} bytes are written "
        "for each byte of states\n",
        paths, options.parity, options.parity,
        static_cast<double>(paths) / static_cast<double>(paths - options.parity));
  if (report.placements.size() == 1) return "";
  if (paths == 1) return fmt::format("  all blocks on {}\n", placement.name);
  return fmt::format("  over all {} swap paths, {}\n", paths,
                     placement.name == "all alike" ? "as much on each" : "in proportion to their rates");
}

std::string duration_text(double seconds) {
  constexpr double long_ones = 100;
  return seconds < long_ones ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string life_text(const TuneReport& report, double endurance_bytes) {
  const bool together = report.placements[report.best->placement].paths.size() > 1;
  const double a_day = written_bytes_a_day(report);
  std::string text = fmt::format("  {:.3g} GB written a step{}, {:.3g} TB a day of nothing but such steps; ",
                                 static_cast<double>(report.written_bytes_a_step) * 1e-9,
                                 together ? " to all drives together" : "", a_day / terabyte);
  if (endurance_bytes > 0)
    return text +
           fmt::format("{:g} TB last {:.1f} days\n", endurance_bytes / terabyte, endurance_bytes / a_day);
  return text + fmt::format("100 TB of endurance last {:.1f} days (--endurance-tbw N for yours)\n",
                            100 * terabyte / a_day);
}

std::string cache_text(const TuneReport& report) {
  if (report.written_bytes == 0 || within_what_was_written(report)) return "";
  return fmt::format(
      "  a step writes more than this tuning did ({:.3g} GB): a drive with a fast cache is slower past it;\n"
      "  headrace bench nvme --sustained 300 measures that\n",
      static_cast<double>(report.written_bytes) * 1e-9);
}

}  // namespace

void TuneScreen::print(const std::string& text) {
  line_.reset();
  fmt::print("{}", text);
  std::fflush(stdout);
}

void TuneScreen::note(std::string_view text) {
  print(fmt::format("{}\n", text));
}

void TuneScreen::stage_began(std::string_view stage, double seconds_left) {
  print(fmt::format("{}{:.0f} s left: {}\n", std::exchange(headed_, true) ? "" : heading(), seconds_left,
                    meaning_of(stage)));
}

void TuneScreen::trial_began(const SwapPoint& point, double seconds_left) {
  if (!line_) line_.emplace(true);
  line_->show(1 - seconds_left / options_.seconds,
              fmt::format("{:.0f} s left  block {}, {} buffers", seconds_left, size_text(point.block_bytes),
                          point.buffers));
}

void TuneScreen::trial_ended(const TuneTrial& trial) {
  const bool known = std::find(shown_.begin(), shown_.end(), trial.point) != shown_.end();
  if (known && trial.failure.empty()) return;
  shown_.push_back(trial.point);
  print(row_of(trial));
}

std::string tune_text(const TuneReport& report, const TuneOptions& options, double endurance_bytes) {
  std::string text = fmt::format("\nbest: {}; {} of host memory\n", text_of(*report.best),
                                 format_bytes(report.memory_bytes));
  text += placement_text(report, options) + comparisons_text(report);
  if (report.ceiling) text += ceiling_text(*report.ceiling);
  text += fmt::format("a step of {:.4g} M parameters: {}{}\n  ({})\n",
                      static_cast<double>(report.parameters) * 1e-6, duration_text(report.step_seconds),
                      report.parameters == report.trial_parameters ? "" : ", by a trial's", predicted_scope);
  text += cache_text(report);
  text += life_text(report, endurance_bytes);
  if (report.stopped) text += "stopped: the best of what was tried so far\n";
  return text;
}

}  // namespace headrace::cli
