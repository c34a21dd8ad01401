#include <fmt/format.h>

#include "headrace/errors.h"
#include "src/cli/bench_flags.h"
#include "src/cli/bench_output.h"
#include "src/cli/interrupt.h"

namespace headrace::cli {
namespace {

struct LinkFlags {
  std::unique_ptr<BenchFlags> bench;
  std::vector<std::string> link_bandwidth;
};

double link_rate(const LinkFlags& flags) {
  if (flags.link_bandwidth.empty()) return 0;
  const std::string& text = only_value("--link-bandwidth", flags.link_bandwidth);
  if (flags.bench->device() == DeviceKind::cuda)
    throw UsageError(
        "--link-bandwidth paces the CPU device; the link of a CUDA device has the rate it has. Leave it out, "
        "or "
        "use --device cpu.");
  return parse_link_rate(text, "--link-bandwidth");
}

int run_link(const LinkFlags& flags) {
  const LaunchInfo launch = launch_info();
  if (launch.size > 1)
    throw UsageError(fmt::format(
        "bench link measures the link of one device, but {} started {} ranks. Start it alone, or measure the "
        "ranks together with bench collectives.",
        launch.launcher, launch.size));
  const BenchOptions options = flags.bench->options();
  BackendOptions backends{
      .device = flags.bench->device(), .link_bytes_per_second = link_rate(flags), .launch = launch};
  const BenchMemory memory = flags.bench->require_memory(link_bench_memory, launch);
  backends.device_memory_bytes = memory.device_bytes;
  const std::unique_ptr<Device> device = open_device(backends);
  MemoryBudget host("host", memory.host_bytes);
  const Interrupt interrupt;
  BenchReport report;
  {
    BenchProgress progress(true);
    report = bench_link(*device, host, options,
                        {.stop_requested = [&] { return interrupt.requested(); },
                         .progress = [&](double done, std::string_view name) { progress.show(done, name); }});
  }
  return finish_bench("link", report, bench_machine(device->info(), 1), flags.bench->json());
}

}  // namespace

void add_bench_link(CLI::App& bench, int& status) {
  CLI::App* command = bench.add_subcommand("link", "copies between host and device, by size");
  const auto flags = std::make_shared<LinkFlags>();
  flags->bench = std::make_unique<BenchFlags>(*command, default_link_sizes(), 1);
  collect_values(command->add_option("--link-bandwidth", flags->link_bandwidth,
                                     "paces CPU-device copies like a PCIe link: 8GB/s (default none)"))
      ->type_name("RATE");
  command->footer(
      "Upload, download and both at once (the sum of the directions), from pinned and from pageable memory.\n"
      "Ceiling: the link's rate where it is known, otherwise memcpy between the same buffers.\n"
      "Ctrl-C prints what is measured so far and ends with status 130.\n"
      "Exit status: 0 done, 1 wrong data, 2 wrong usage, 3 does not fit, 130 stopped.\n\n"
      "Example: does a link paced at 2 GB/s carry 2 GB/s?\n"
      "  headrace bench link --link-bandwidth 2GB/s --sizes 64KiB,16MiB");
  command->callback([flags, &status] { status = run_link(*flags); });
}

}  // namespace headrace::cli
