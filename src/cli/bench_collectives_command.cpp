#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "headrace/train.h"
#include "src/cli/bench_flags.h"
#include "src/cli/bench_output.h"
#include "src/cli/interrupt.h"

namespace headrace::cli {
namespace {

struct CollectivesFlags {
  std::unique_ptr<BenchFlags> bench;
  std::vector<std::string> timeout;
};

// In order of construction: later members use earlier ones.
struct OpenBackends {
  std::unique_ptr<Device> device;
  std::unique_ptr<DeviceKernels> kernels;
  std::unique_ptr<Communicator> communicator;
};

double timeout_of(const CollectivesFlags& flags, double otherwise) {
  constexpr double year = 365.0 * 86400;
  if (flags.timeout.empty()) return otherwise;
  return parse_seconds(only_value("--timeout", flags.timeout), "--timeout", 1, year);
}

int measure(const CollectivesFlags& flags, const LaunchInfo& launch, OpenBackends& open) {
  const BenchOptions options = flags.bench->options();
  BackendOptions backends{.device = flags.bench->device(), .launch = launch};
  backends.timeout_seconds = timeout_of(flags, backends.timeout_seconds);
  const BenchMemory memory = flags.bench->require_memory(
      [&](Bytes largest) { return collective_bench_memory(largest, launch.size); }, launch);
  backends.device_memory_bytes = memory.device_bytes;
  open.device = open_device(backends);
  open.kernels = open_kernels(backends, *open.device);
  open.communicator = open_communicator(backends, *open.device);
  MemoryBudget host("host", memory.host_bytes);
  const Interrupt interrupt;
  BenchReport report;
  {
    BenchProgress progress(launch.rank == 0);
    report = bench_collectives(
        *open.device, *open.kernels, *open.communicator, host, options,
        {.stop_requested = [&] { return interrupt.requested(); },
         .progress = [&](double done, std::string_view name) { progress.show(done, name); }});
  }
  if (launch.rank != 0) return report.stopped ? Interrupt::exit_status : 0;
  return finish_bench("collectives", report, bench_machine(open.device->info(), launch.size),
                      flags.bench->json());
}

int run_collectives(const CollectivesFlags& flags) {
  const LaunchInfo launch = launch_info();
  set_log_rank(launch.rank);
  OpenBackends open;
  if (launch.size == 1) return measure(flags, launch, open);
  try {
    return measure(flags, launch, open);
  } catch (const std::exception& error) {
    // Closing the backends would wait for ranks that wait for this one: the launcher ends them when this
    // process ends.
    std::_Exit(report_error(error, launch));
  }
}

}  // namespace

void add_bench_collectives(CLI::App& bench, int& status) {
  CLI::App* command = bench.add_subcommand("collectives", "collectives between the ranks of a job, by size");
  const auto flags = std::make_shared<CollectivesFlags>();
  constexpr Bytes smallest = 4;  // one fp32 value
  flags->bench = std::make_unique<BenchFlags>(*command, default_collective_sizes(), smallest);
  collect_values(command->add_option("--timeout", flags->timeout,
                                     "a rank that waits longer for another ends the job (default 600)"))
      ->type_name("SECONDS");
  command->footer(
      "Of device memory: all_gather, reduce_scatter (all_to_all and a sum, as a run does it), all_reduce,\n"
      "broadcast, all_to_all; and each once at a size that no number of ranks divides. Bandwidths are those "
      "of\n"
      "nccl-tests: algbw = S/t; busbw = algbw x 2(n-1)/n for all_reduce, x 1 for broadcast, x (n-1)/n for "
      "the "
      "others.\n"
      "S is the whole vector: what a rank holds after all_gather or before reduce_scatter. t is the slowest "
      "rank's.\n"
      "Exit status: 0 done, 1 wrong data, 2 wrong usage, 3 does not fit, 130 stopped by Ctrl-C.\n\n"
      "Example: two ranks on this machine\n"
      "  mpirun -n 2 headrace bench collectives");
  command->callback([flags, &status] { status = run_collectives(*flags); });
}

}  // namespace headrace::cli
