#include "src/cli/bench_adam_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "headrace/cpu_pool.h"
#include "headrace/topology.h"
#include "src/cli/bench_output.h"

namespace headrace::cli {

nlohmann::ordered_json to_json(const AdamBenchReport& report) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const AdamBenchResult& result : report.results)
    results.push_back({{"case", result.name},
                       {"value", result.value},
                       {"unit", "GB/s"},
                       {"ceiling", result.ceiling},
                       {"ratio", result.ratio},
                       {"rounds", result.rounds},
                       {"mad", result.deviation},
                       {"format", result.format},
                       {"optimizer", result.optimizer},
                       {"tensors", result.shape.tensors},
                       {"numel", result.shape.numel},
                       {"bytes_per_element", result.bytes_per_element},
                       {"seconds", result.seconds},
                       {"ceiling_stores", result.streaming_ceiling ? "streaming" : "plain"}});
  return {{"benchmark", "adam"},
          {"machine",
           {{"cpu", cpu_model()},
            {"cpus", available_cpus()},
            {"isa", report.isa},
            {"threads", report.threads},
            {"threads_by_node", report.placement}}},
          {"results", results},
          {"notes", report.notes}};
}

// Whether the results at `at` and before it belong to one block of lines.
static bool continues(const std::vector<AdamBenchResult>& results, std::size_t at) {
  return results[at - 1].format == results[at].format && results[at - 1].optimizer == results[at].optimizer;
}

std::string to_text(const AdamBenchReport& report) {
  std::size_t name_width = 4;
  for (const AdamBenchResult& result : report.results) name_width = std::max(name_width, result.name.size());
  std::string text = fmt::format(
      "{} thread{}{}, {}, {}\n"
      "GB/s: each state once in and out, the gradient in, 16-bit parameters out\n"
      "ceiling: the same loads and stores with one addition each, in the same rounds; s: by streaming\n",
      report.threads, report.threads == 1 ? "" : "s",
      report.placement.empty() ? "" : fmt::format(" ({})", report.placement), report.isa, cpu_model());
  for (const std::string& note : report.notes) text += note + '\n';
  text += fmt::format("\n{:<{}}{:>8}{:>11}{:>9}{:>8}{:>10}{:>8}\n", "case", name_width, "bytes", "time",
                      "GB/s", "+-", "ceiling", "ratio");
  bool has_blocks = false;  // of more than a line
  for (std::size_t i = 1; i < report.results.size(); ++i) has_blocks |= continues(report.results, i);
  for (std::size_t i = 0; i < report.results.size(); ++i) {
    const AdamBenchResult& result = report.results[i];
    if (i > 0 && has_blocks && !continues(report.results, i)) text += '\n';
    text += fmt::format("{:<{}}{:>8.4g}{:>11}{:>9.2f}{:>8.2f}{:>9.2f}{}{:>8.3f}\n", result.name, name_width,
                        result.bytes_per_element, time_text(result.seconds), result.value, result.deviation,
                        result.ceiling, result.streaming_ceiling ? "s" : " ", result.ratio);
  }
  if (report.stopped) text += "\nstopped: medians of the rounds so far\n";
  return text;
}

}  // namespace headrace::cli
