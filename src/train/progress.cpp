#include "src/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "headrace/elapsed.h"

namespace headrace {
namespace {

constexpr std::size_t bar_cells = 24;

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(seconds, 0.0) + 0.5);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

std::string figures(const StepMetrics& m) {
  std::string text = fmt::format("loss {}", format_loss(m.ranks.loss));
  if (m.eval_loss) text += fmt::format("  held-out {}", format_loss(*m.eval_loss));
  if (m.loss_scale != 1) text += fmt::format("  scale {:g}", m.loss_scale);
  return text + fmt::format("  norm {:.3g}  lr {:.2e}  {:.0f} tok/s  {:.3g} s/step{}", m.gradient_norm,
                            m.learning_rate, m.tokens_per_second, m.step_seconds,
                            m.skipped ? "  skipped (not finite)" : "");
}

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Style Progress::style_for(bool quiet, int rank) {
  if (quiet || rank != 0) return Style::none;
  return ::isatty(STDERR_FILENO) == 1 ? Style::bar : Style::lines;
}

Progress::Progress(Style style, std::uint64_t steps, std::uint64_t first_step, std::uint64_t log_every)
    : style_(style), steps_(steps), first_step_(first_step), log_every_(log_every) {}

Progress::~Progress() {
  if (bar_drawn_) std::fputc('\n', stderr);
}

void Progress::show(const StepMetrics& metrics) {
  if (style_ == Style::none) return;
  const bool must_show =
      metrics.step == steps_ || metrics.step == first_step_ + 1 || metrics.eval_loss.has_value();
  const auto quiet_time =
      style_ == Style::bar ? std::chrono::milliseconds(100) : std::chrono::milliseconds(1000);
  if (!must_show && Clock::now() - last_shown_ < quiet_time) return;
  if (style_ == Style::lines && !must_show && metrics.step % log_every_ != 0) return;
  last_shown_ = Clock::now();
  if (style_ == Style::bar)
    draw_bar(metrics);
  else
    print_line(metrics);
}

double Progress::remaining_seconds(std::uint64_t step) const {
  const double elapsed = seconds_since(start_);
  return elapsed / static_cast<double>(step - first_step_) *
         static_cast<double>(steps_ - std::min(steps_, step));
}

void Progress::draw_bar(const StepMetrics& metrics) {
  const std::size_t filled = std::min<std::size_t>(bar_cells, metrics.step * bar_cells / steps_);
  std::string line =
      fmt::format("[{:<{}}] {}/{}  {}  {} left", std::string(filled, '='), bar_cells, metrics.step, steps_,
                  figures(metrics), format_duration(remaining_seconds(metrics.step)));
  line.resize(std::min(line.size(), terminal_columns() - 1));
  fmt::print(stderr, "\r\x1b[K{}", line);
  if (metrics.eval_loss) std::fputc('\n', stderr);  // a line that stays
  bar_drawn_ = !metrics.eval_loss.has_value();
  std::fflush(stderr);
}

void Progress::print_line(const StepMetrics& metrics) const {
  fmt::print(stderr, "step {}/{}  {}\n", metrics.step, steps_, figures(metrics));
}

}  // namespace headrace
