// Progress on stderr: a bar that redraws itself on a terminal, plain lines, at most one a second, elsewhere.
#pragma once

#include <chrono>
#include <cstdint>

#include "src/train/metrics.h"

namespace headrace {

class Progress {
 public:
  enum class Style : std::uint8_t { none, bar, lines };
  // Only rank 0 of a run that is not quiet shows anything.
  static Style style_for(bool quiet, int rank);
  Progress(Style style, std::uint64_t steps, std::uint64_t first_step, std::uint64_t log_every);
  ~Progress();
  void show(const StepMetrics& metrics);

 private:
  void draw_bar(const StepMetrics& metrics);
  void print_line(const StepMetrics& metrics) const;
  double remaining_seconds(std::uint64_t step) const;

  using Clock = std::chrono::steady_clock;
  Style style_;
  std::uint64_t steps_, first_step_, log_every_;
  Clock::time_point start_ = Clock::now(), last_shown_{};
  bool bar_drawn_ = false;
};

}  // namespace headrace
