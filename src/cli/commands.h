// One function a subcommand: adds it to the program. The callback stores the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/config.h"

namespace headrace::cli {

void add_train(CLI::App& program, int& status);
void add_plan(CLI::App& program, int& status);
void add_inspect(CLI::App& program, int& status);
void add_export(CLI::App& program, int& status);
void add_checkpoint(CLI::App& program, int& status);
void add_generate(CLI::App& program, int& status);
void add_doctor(CLI::App& program, int& status);
void add_bench(CLI::App& program, int& status);
void add_tune(CLI::App& program, int& status);
void add_bench_link(CLI::App& bench, int& status);
void add_bench_collectives(CLI::App& bench, int& status);
void add_bench_nvme(CLI::App& bench, int& status);
void add_bench_adam(CLI::App& bench, int& status);

// Keeps every value of a flag that takes one, for only_value.
CLI::Option* collect_values(CLI::Option* option);
// The value of a flag, which may be repeated but not changed on the way; UsageError otherwise.
// The values of a flag that may be repeated; UsageError when one is missing.
const std::vector<std::string>& all_values(const std::string& flag, const std::vector<std::string>& values);
const std::string& only_value(const std::string& flag, const std::vector<std::string>& values);

// The flags of every setting, --config and --print-config, kept until the command line is parsed.
class RunFlags {
 public:
  enum class Command { train, plan };
  RunFlags(CLI::App& command, Command which);
  // The file first, then the flags over it.
  ResolvedOptions resolve(const LaunchInfo& launch) const;
  bool print_config() const { return print_config_; }

 private:
  std::vector<std::string> config_paths_;
  bool print_config_ = false;
  std::map<std::string, std::string> switches_;            // "" where not given
  std::map<std::string, std::vector<std::string>> given_;  // the values of each setting
};

}  // namespace headrace::cli
