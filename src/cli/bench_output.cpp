#include "src/cli/bench_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "headrace/cpu_pool.h"
#include "headrace/topology.h"
#include "src/cli/interrupt.h"
#include "src/cli/json_text.h"

namespace headrace::cli {
namespace {

using Json = nlohmann::ordered_json;

// A benchmark has the columns that its results fill.
struct Columns {
  std::size_t name_width = 4;
  bool rate = false, algorithm = false;
};

Columns columns_of(const BenchReport& report) {
  Columns columns;
  for (const BenchResult& result : report.results) {
    columns.name_width = std::max(columns.name_width, result.name.size());
    columns.rate |= result.unit == "GB/s";
    columns.algorithm |= result.algorithm_bandwidth.has_value();
  }
  return columns;
}

std::string row(const Columns& columns, std::string_view name, std::string_view time,
                std::string_view algorithm, std::string_view rate, std::string_view ceiling,
                std::string_view ratio) {
  std::string text = fmt::format("{:<{}}{:>12}", name, columns.name_width, time);
  if (columns.algorithm) text += fmt::format("{:>12}", algorithm);
  if (columns.rate) text += fmt::format("{:>12}{:>10}{:>8}", rate, ceiling, ratio);
  return text + '\n';
}

}  // namespace

Json json_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::string or_dash(const std::optional<double>& value, int decimals) {
  return value ? fmt::format("{:.{}f}", *value, decimals) : "-";
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

BenchMachine bench_machine(const DeviceInfo& device, int ranks) {
  return {.device = device.name,
          .link = device.link,
          .near = device.near,
          .copy_engines = device.copy_engines,
          .ranks = ranks};
}

Json to_json(std::string_view benchmark, const BenchReport& report, const BenchMachine& machine) {
  Json results = Json::array();
  for (const BenchResult& result : report.results) {
    results.push_back({{"case", result.name},
                       {"value", result.value},
                       {"unit", result.unit},
                       {"ceiling", json_or_null(result.ceiling)},
                       {"ratio", json_or_null(result.ratio())},
                       {"rounds", result.rounds},
                       {"bytes", result.bytes},
                       {"seconds", result.seconds}});
    if (result.algorithm_bandwidth) results.back()["algorithm_bandwidth"] = *result.algorithm_bandwidth;
  }
  return {{"benchmark", benchmark},
          {"machine",
           {{"cpu", cpu_model()},
            {"cpus", available_cpus()},
            {"device", machine.device},
            {"link", machine.link},
            {"near", machine.near},
            {"copy_engines", machine.copy_engines},
            {"ranks", machine.ranks}}},
          {"results", results}};
}

std::string to_text(const BenchReport& report, const BenchMachine& machine) {
  const Columns columns = columns_of(report);
  std::string text = fmt::format(
      "device {}{}, link to the host: {}, {} copy engine{}; {} rank{}\nceiling: {}\n", machine.device,
      machine.near.empty() ? "" : " near " + machine.near, machine.link, machine.copy_engines,
      machine.copy_engines == 1 ? "" : "s", machine.ranks, machine.ranks == 1 ? "" : "s", report.ceiling);
  for (const std::string& note : report.notes) text += note + '\n';
  text += '\n' + row(columns, "case", "time", "algbw GB/s", columns.algorithm ? "busbw GB/s" : "GB/s",
                     "ceiling", "ratio");
  const std::string* group = nullptr;
  for (const BenchResult& result : report.results) {
    if (group != nullptr && *group != result.group) text += '\n';
    group = &result.group;
    text += row(columns, result.name, time_text(result.seconds), or_dash(result.algorithm_bandwidth, 3),
                fmt::format("{:.3f}", result.value), or_dash(result.ceiling, 2), or_dash(result.ratio(), 3));
  }
  if (report.stopped) text += "\nstopped: medians of the rounds so far\n";
  return text;
}

BenchProgress::BenchProgress(bool speaks) : draws_(speaks && ::isatty(STDERR_FILENO) == 1) {}

BenchProgress::~BenchProgress() {
  constexpr std::string_view erase_line = "\r\x1b[K";
  if (drawn_) fmt::print(stderr, "{}", erase_line);
  std::fflush(stderr);
}

void BenchProgress::show(double done, std::string_view name) {
  constexpr std::size_t cells = 24;
  if (!draws_) return;
  const auto filled = static_cast<std::size_t>(done * cells);
  fmt::print(stderr, "\r\x1b[K[{:<{}}] {:.0f}%  {}", std::string(filled, '='), cells, done * 100, name);
  std::fflush(stderr);
  drawn_ = true;
}

int finish_bench(std::string_view benchmark, const BenchReport& report, const BenchMachine& machine,
                 bool json) {
  if (!report.results.empty())
    fmt::print("{}", json ? json_text(to_json(benchmark, report, machine)) : to_text(report, machine));
  return report.stopped ? Interrupt::exit_status : 0;
}

}  // namespace headrace::cli
