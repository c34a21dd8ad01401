#include "src/cli/bench_nvme_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "headrace/cpu_pool.h"
#include "headrace/topology.h"

namespace headrace::cli {
namespace {

using Json = nlohmann::ordered_json;

Json machine_of(const NvmeReport& report) {
  Json paths = Json::array();
  for (const NvmePath& path : report.paths)
    paths.push_back({{"path", path.path},
                     {"file_system", path.file_system},
                     {"drive", path.drive},
                     {"link_gb_per_second", json_or_null(path.link_rate)},
                     {"direct", path.direct},
                     {"file_bytes", path.file_bytes},
                     {"prepare_seconds", path.prepare_seconds}});
  return {{"cpu", cpu_model()},
          {"cpus", available_cpus()},
          {"io", report.engine},
          {"registered_buffers", report.registered_buffers},
          {"memory_copy_gb_per_second", report.memory_rate},
          {"paths", paths},
          {"written_bytes", report.written_bytes},
          {"seconds", report.seconds},
          {"stopped", report.stopped}};
}

// One round says nothing of how rounds differ.
std::optional<double> deviation_of(const NvmeResult& result) {
  return result.rounds > 1 ? std::optional(result.deviation) : std::nullopt;
}

Json result_of(const NvmeResult& result) {
  return {{"case", result.name},
          {"value", result.value},
          {"unit", "GB/s"},
          {"ceiling", json_or_null(result.ceiling)},
          {"ratio", json_or_null(result.ratio())},
          {"rounds", result.rounds},
          {"mad", json_or_null(deviation_of(result))},
          {"path", result.path.empty() ? Json() : Json(result.path)},
          {"operation", name_of(result.operation)},
          {"access", name_of(result.access)},
          {"block_bytes", result.block_bytes},
          {"depth", result.depth},
          {"in_flight", result.in_flight},
          {"read_share", result.read_share},
          {"operations_per_second", result.operations_per_second},
          {"latency_median_seconds", result.latency_median},
          {"latency_p99_seconds", result.latency_p99},
          {"cpu_seconds_per_gb", result.cpu_seconds_per_gb},
          {"source", name_of(result.source)},
          {"moved_bytes", result.moved_bytes}};
}

Json result_of(const NvmeSustained& result) {
  return {{"case", result.name},
          {"value", result.steady},
          {"unit", "GB/s"},
          {"ceiling", result.ceiling()},
          {"ratio", result.ceiling() > 0 ? Json(result.steady / result.ceiling()) : Json()},
          {"rounds", result.rates.size()},
          {"first", result.first},
          {"path", result.path.empty() ? Json() : Json(result.path)},
          {"block_bytes", result.block_bytes},
          {"depth", result.depth},
          {"in_flight", result.in_flight},
          {"drop", result.drop()},
          {"settled", result.settled},
          {"interval_seconds", result.interval_seconds},
          {"intervals", result.rates},
          {"source", name_of(result.source)}};
}

std::string operations_text(double per_second) {
  return per_second < 1e4 ? fmt::format("{:.0f}", per_second) : fmt::format("{:.1f}k", per_second * 1e-3);
}

std::string path_text(const NvmePath& path) {
  std::string text = fmt::format("{}: {}", path.path, path.file_system.empty() ? "?" : path.file_system);
  if (!path.drive.empty()) text += fmt::format(" on {}", path.drive);
  if (path.link_rate) text += fmt::format(", PCIe link {:.1f} GB/s", *path.link_rate);
  return text + fmt::format(", {}; file of {}, written once in {:.1f} s\n",
                            path.direct ? "direct I/O" : "buffered", format_bytes(path.file_bytes),
                            path.prepare_seconds);
}

std::string head_of(const NvmeReport& report) {
  std::string text;
  for (const NvmePath& path : report.paths) text += path_text(path);
  return text + fmt::format("engine {}{}; memory copies reach {:.1f} GB/s\n", report.engine,
                            report.registered_buffers ? " with registered buffers" : "", report.memory_rate);
}

// What was checked: of writes, what of each sample was read back.
std::string checked_text(const NvmeReport& report) {
  const bool reads = std::any_of(report.results.begin(), report.results.end(), [](const NvmeResult& result) {
    return result.operation != NvmeOperation::write;
  });
  return fmt::format("; {} had the right data", reads ? "every block that was read"
                                                      : "the blocks that were read back of what was written");
}

std::string foot_of(const NvmeReport& report, bool any_results) {
  std::string text = fmt::format("\n{} written in {:.1f} s{}\n", format_bytes(report.written_bytes),
                                 report.seconds, any_results ? checked_text(report) : "");
  for (const std::string& note : report.notes) text += note + '\n';
  return text;
}

std::string bar(double rate, double highest) {
  constexpr double cells = 40;
  return std::string(highest > 0 ? static_cast<std::size_t>(rate / highest * cells + 0.5) : 0, '#');
}

std::string intervals_text(const NvmeSustained& result) {
  std::string text =
      fmt::format("\n{} ({})\n{:>10}{:>10}\n", result.name, name_of(result.source), "until s", "GB/s");
  const double highest = *std::max_element(result.rates.begin(), result.rates.end());
  for (std::size_t i = 0; i < result.rates.size(); ++i)
    text += fmt::format("{:>10.4g}{:>10.3f}  {}\n", static_cast<double>(i + 1) * result.interval_seconds,
                        result.rates[i], bar(result.rates[i], highest));
  return text + fmt::format(
                    "first {:.3f} GB/s (highest median of 3 rows in a row of the first third), steady "
                    "{:.3f} GB/s (median of the last third): {} {:.0f}%{}\n",
                    result.first, result.steady, result.drop() < 0 ? "a rise of" : "a drop of",
                    std::abs(result.drop()) * 100,
                    result.settled ? "" : "; the rate had not settled: give --sustained more seconds");
}

std::string mixed_text(const NvmeReport& report) {
  for (const NvmeResult& result : report.results)
    if (result.operation == NvmeOperation::mixed)
      return fmt::format("mixed: {:g}% of the blocks are read, the others written\n",
                         result.read_share * 100);
  return "";
}

}  // namespace

Json to_json(const NvmeReport& report) {
  Json results = Json::array();
  for (const NvmeResult& result : report.results) results.push_back(result_of(result));
  return {
      {"benchmark", "nvme"}, {"machine", machine_of(report)}, {"results", results}, {"notes", report.notes}};
}

Json to_json(const NvmeSustainedReport& report) {
  Json results = Json::array();
  for (const NvmeSustained& result : report.results) results.push_back(result_of(result));
  return {{"benchmark", "nvme"},
          {"machine", machine_of(report.run)},
          {"results", results},
          {"notes", report.run.notes}};
}

std::string to_text(const NvmeReport& report) {
  if (report.results.empty()) return head_of(report) + foot_of(report, false);
  std::size_t width = 4;
  for (const NvmeResult& result : report.results) width = std::max(width, result.name.size());
  std::string text = head_of(report) + mixed_text(report);
  text += fmt::format("ceiling: the best case of the same operation{}\n",
                      report.paths.size() > 1 ? "; of all paths, the sum of what each gives alone" : "");
  text += fmt::format("\n{:<{}}{:>9}{:>8}{:>8}{:>12}{:>12}{:>10}{:>9}{:>7}  {}\n", "case", width, "GB/s",
                      "MAD", "IOPS", "latency", "p99", "CPU s/GB", "ceiling", "ratio", "source");
  const std::string* group = nullptr;
  for (const NvmeResult& result : report.results) {
    if (group != nullptr && *group != result.group) text += '\n';
    group = &result.group;
    text += fmt::format("{:<{}}{:>9.3f}{:>8}{:>8}{:>12}{:>12}{:>10.3f}{:>9}{:>7}  {}\n", result.name, width,
                        result.value, or_dash(deviation_of(result), 3),
                        operations_text(result.operations_per_second), time_text(result.latency_median),
                        time_text(result.latency_p99), result.cpu_seconds_per_gb, or_dash(result.ceiling, 3),
                        or_dash(result.ratio(), 2), name_of(result.source));
  }
  text += foot_of(report, true);
  if (report.stopped) text += "stopped: medians of the rounds so far\n";
  return text;
}

std::string to_text(const NvmeSustainedReport& report) {
  std::string text = head_of(report.run);
  for (const NvmeSustained& result : report.results) text += intervals_text(result);
  text += foot_of(report.run, !report.results.empty());
  if (report.run.stopped) text += "stopped: the intervals so far\n";
  return text;
}

NvmeProgress::NvmeProgress(bool speaks) : speaks_(speaks), terminal_(::isatty(STDERR_FILENO) == 1) {}

void NvmeProgress::show(double done, std::string_view now) {
  if (!speaks_) return;
  if (terminal_) {
    if (!drawn_) drawn_.emplace(true);
    drawn_->show(done, now);
    return;
  }
  const int tenths = static_cast<int>(done * 10);
  if (tenths <= tenths_) return;
  tenths_ = tenths;
  say(fmt::format("{}%: {}", tenths * 10, now));
}

void NvmeProgress::say(std::string_view line) {
  if (!speaks_) return;
  end();
  fmt::print(stderr, "{}\n", line);
  std::fflush(stderr);
}

}  // namespace headrace::cli
