// `headrace bench`: the benchmarks are subcommands of it, each with a file of its own.
#include "src/cli/commands.h"

namespace headrace::cli {

void add_bench(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("bench", "measure what this machine gives a run");
  command->require_subcommand(0, 1);
  command->footer(
      "`headrace bench BENCHMARK --help` shows the flags of a benchmark.\n"
      "Each measures its cases in alternating rounds, verifies the data that moved, and prints the median\n"
      "beside a ceiling of the same run. Exit status: 0 done, 1 wrong data, 2 wrong usage, 3 does not "
      "fit.\n\n"
      "Example: how fast is the link to the device?\n"
      "  headrace bench link");
  add_bench_link(*command, status);
  add_bench_collectives(*command, status);
  add_bench_nvme(*command, status);
  add_bench_adam(*command, status);
}

}  // namespace headrace::cli
