// What a benchmark prints: a table or one JSON object on stdout, its progress on stderr.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "headrace/bench.h"

namespace headrace::cli {

struct BenchMachine {
  std::string device, link;  // link: between host and device
  std::string near = {};     // cores and drives of the device's NUMA node
  int copy_engines = 0;
  int ranks = 1;
};
BenchMachine bench_machine(const DeviceInfo& device, int ranks);

std::string time_text(double seconds);  // "4.10 us"
nlohmann::ordered_json json_or_null(const std::optional<double>& value);
std::string or_dash(const std::optional<double>& value, int decimals);

nlohmann::ordered_json to_json(std::string_view benchmark, const BenchReport& report,
                               const BenchMachine& machine);
std::string to_text(const BenchReport& report, const BenchMachine& machine);

// A line that redraws itself on a terminal, nothing elsewhere.
class BenchProgress {
 public:
  explicit BenchProgress(bool speaks);
  ~BenchProgress();
  void show(double done, std::string_view name);

 private:
  bool draws_, drawn_ = false;
};

// Prints the report; returns the exit status. Nothing is printed when a stop came before the first result.
int finish_bench(std::string_view benchmark, const BenchReport& report, const BenchMachine& machine,
                 bool json);

}  // namespace headrace::cli
