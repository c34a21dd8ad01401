// What `bench nvme` prints: a table or one JSON object on stdout; steps and progress on stderr.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "headrace/nvme_bench.h"
#include "src/cli/bench_output.h"

namespace headrace::cli {

nlohmann::ordered_json to_json(const NvmeReport& report);
nlohmann::ordered_json to_json(const NvmeSustainedReport& report);
std::string to_text(const NvmeReport& report);
std::string to_text(const NvmeSustainedReport& report);

// A line that redraws itself on a terminal; elsewhere a line whenever a tenth of the time is over.
class NvmeProgress {
 public:
  explicit NvmeProgress(bool speaks);
  void show(double done, std::string_view now);
  void say(std::string_view line);
  void end() { drawn_.reset(); }  // erases its line

 private:
  bool speaks_, terminal_;
  std::optional<BenchProgress> drawn_;
  int tenths_ = 0;
};

}  // namespace headrace::cli
