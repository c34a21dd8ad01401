// One function a subcommand: adds it to the program. The callback stores the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "headrace/config.h"

namespace headrace::cli {

void add_train(CLI::App& program, int& status);
void add_plan(CLI::App& program, int& status);
void add_inspect(CLI::App& program, int& status);

// The flags of every setting, --config and --print-config, kept until the command line is parsed.
class RunFlags {
 public:
  enum class Command { train, plan };
  RunFlags(CLI::App& command, Command which);
  // The file first, then the flags over it.
  ResolvedOptions resolve(const LaunchInfo& launch) const;
  bool print_config() const { return print_config_; }

 private:
  struct Given {
    std::string setting, value;
  };
  std::string config_path_;
  bool print_config_ = false;
  std::vector<Given> given_;
};

}  // namespace headrace::cli
