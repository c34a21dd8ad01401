// What `headrace tune` prints: a row for each point it tries, the parts of the search with the time that is
// left, and what came out. Results on stdout, the line that redraws itself on stderr.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/tune.h"
#include "src/cli/bench_output.h"

namespace headrace::cli {

class TuneScreen {
 public:
  explicit TuneScreen(const TuneOptions& options) : options_(options) {}
  void note(std::string_view text);
  void stage_began(std::string_view stage, double seconds_left);
  void trial_began(const SwapPoint& point, double seconds_left);
  // A point has one row, of its first sample; all samples are in the JSON.
  void trial_ended(const TuneTrial& trial);

 private:
  void print(const std::string& text);

  const TuneOptions& options_;
  bool headed_ = false;
  std::vector<SwapPoint> shown_;
  std::optional<BenchProgress> line_;
};

// `endurance_bytes`: what the drives may be written; 0: not known. `report.best` is there.
std::string tune_text(const TuneReport& report, const TuneOptions& options, double endurance_bytes);

}  // namespace headrace::cli
