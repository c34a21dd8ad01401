#include <fmt/format.h>

#include "headrace/train.h"
#include "src/cli/commands.h"

namespace headrace::cli {

void add_train(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("train", "train a model");
  const auto flags = std::make_shared<RunFlags>(*command, RunFlags::Command::train);
  command->footer(
      "Sizes are bytes with a unit: 64MiB, 1.5GiB, 2GB (powers of 1000), 4096. Limits are hard, and per "
      "rank.\n"
      "Ctrl-C or SIGTERM (one process), or SIGUSR1 (also to mpirun), finishes the step, commits and saves "
      "it; "
      "a\n"
      "second Ctrl-C or SIGTERM ends at once.\n"
      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 does not fit; stopped: 143 by SIGTERM, else 130.\n\n"
      "Example: gpt2-70m in 80 MiB of device memory, optimizer states on NVMe\n"
      "  mkdir -p /tmp/swap\n"
      "  headrace train --model gpt2-70m --data /usr/include/c++ --eval-data /usr/include/stdio.h \\\n"
      "    --batch-size 1 --recompute --stage 3 --offload-parameters cpu --offload-gradients cpu \\\n"
      "    --offload-optimizer nvme --swap-path /tmp/swap --device-memory 96MiB --steps 20\n"
      "With several ranks: mpirun -n 4 headrace train ...");
  command->callback([flags, &status] {
    const ResolvedOptions options = flags->resolve(launch_info());
    if (!flags->print_config()) {
      status = train(options);
    } else if (options.launch.rank == 0) {
      fmt::print("{}\n", options.effective_config);
    }
  });
}

}  // namespace headrace::cli
