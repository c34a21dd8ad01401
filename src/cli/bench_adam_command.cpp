#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "headrace/adam_bench.h"
#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "src/cli/bench_adam_output.h"
#include "src/cli/bench_flags.h"
#include "src/cli/bench_output.h"
#include "src/cli/interrupt.h"
#include "src/cli/json_text.h"

namespace headrace::cli {
namespace {

using Values = std::vector<std::string>;

struct AdamFlags {
  Values formats, optimizers, elements, seconds, threads, host_memory;
  bool json = false;
};

std::vector<std::string> names_of(const std::string& flag, const Values& given,
                                  const std::vector<std::string_view>& known) {
  std::vector<std::string> names;
  for (const std::size_t place : places_of(flag, given, known)) names.emplace_back(known[place]);
  return names;
}

AdamBenchOptions options_of(const AdamFlags& flags) {
  AdamBenchOptions options;
  if (!flags.formats.empty()) options.formats = names_of("--format", flags.formats, adam_bench_formats());
  if (!flags.optimizers.empty())
    options.optimizers = names_of("--optimizer", flags.optimizers, adam_bench_optimizers());
  if (!flags.elements.empty()) {
    options.shapes.clear();
    for (const std::string& word : words_of("--elements", flags.elements)) {
      const TensorShape shape = parse_shape(word, "--elements");
      if (std::find(options.shapes.begin(), options.shapes.end(), shape) == options.shapes.end())
        options.shapes.push_back(shape);
    }
  }
  constexpr double least = 0.001, most = 86400;
  if (!flags.seconds.empty())
    options.seconds = parse_seconds(only_value("--seconds", flags.seconds), "--seconds", least, most);
  return options;
}

int threads_of(const AdamFlags& flags) {
  if (flags.threads.empty()) return 0;
  const double threads = parse_seconds(only_value("--threads", flags.threads), "--threads", 1, 4096);
  if (threads != static_cast<int>(threads)) throw UsageError("--threads: give a whole number.");
  return static_cast<int>(threads);
}

// What the tensors may take: as much as the machine has, less what the rest of it needs.
Bytes memory_of(const AdamFlags& flags, const AdamBenchOptions& options) {
  const Bytes available = available_host_memory() / 10 * 9;
  Bytes limit = available;
  if (!flags.host_memory.empty()) {
    limit = std::min(available, parse_bytes(only_value("--host-memory", flags.host_memory), "--host-memory"));
    if (limit == 0)
      throw UsageError("--host-memory: a limit of 0 bytes leaves no memory. Leave it out for no limit.");
  }
  if (const Bytes least = adam_bench_least_memory(options); least > limit)
    throw DoesNotFit(fmt::format(
        "the benchmark does not fit: its smallest case takes {} of host memory, and {} are {}. Give smaller "
        "--elements{}.",
        format_bytes(least), format_bytes(limit),
        limit < available ? "allowed by --host-memory" : "available",
        limit < available ? ", or a larger --host-memory" : ""));
  return limit;
}

int run_adam(const AdamFlags& flags) {
  const LaunchInfo launch = launch_info();
  if (launch.size > 1)
    throw UsageError(
        fmt::format("bench adam measures the update of one process, but {} started {} ranks. Start it alone.",
                    launch.launcher, launch.size));
  const AdamBenchOptions options = options_of(flags);
  set_cpu_threads(threads_of(flags));
  MemoryBudget host("host", memory_of(flags, options));
  const Interrupt interrupt;
  AdamBenchReport report;
  {
    BenchProgress progress(true);
    report = bench_adam(host, options,
                        {.stop_requested = [&] { return interrupt.requested(); },
                         .progress = [&](double done, std::string_view name) { progress.show(done, name); }});
  }
  if (!report.results.empty()) fmt::print("{}", flags.json ? json_text(to_json(report)) : to_text(report));
  return report.stopped ? Interrupt::exit_status : 0;
}

}  // namespace

void add_bench_adam(CLI::App& bench, int& status) {
  CLI::App* command = bench.add_subcommand("adam", "the CPU's optimizer update, by format and size");
  const auto flags = std::make_shared<AdamFlags>();
  const auto add = [&](const char* flag, Values& values, const std::string& meaning, const char* type) {
    collect_values(command->add_option(flag, values, meaning))->type_name(type);
  };
  std::vector<std::string> shapes;
  for (const TensorShape& shape : default_adam_shapes()) shapes.push_back(text_of(shape));
  add("--format", flags->formats,
      fmt::format("any of {} (default all)", fmt::join(adam_bench_formats(), ", ")), "NAME,...");
  add("--optimizer", flags->optimizers,
      fmt::format("any of {} (default adamw; sgd has momentum 0.9)",
                  fmt::join(adam_bench_optimizers(), ", ")),
      "NAME,...");
  add("--elements", flags->elements,
      fmt::format("sizes, or tensors of a size in one call (default {})", fmt::join(shapes, ",")),
      "N,COUNTxN,...");
  add("--seconds", flags->seconds, "time of the whole benchmark (default 60)", "SECONDS");
  add("--threads", flags->threads, "threads of the update (default this process's share of the CPUs)", "N");
  add("--host-memory", flags->host_memory, "most that the tensors may take (default what is available)",
      "SIZE");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->footer(
      "fp32: everything in fp32, in place. bf16, fp16: gradient and parameters in 16 bits, master and\n"
      "moments in fp32. bf16-moments, int8-moments: the same with moments in fewer bits. bf16-master: bf16\n"
      "parameters rounded stochastically, without an fp32 copy. bf16-all: their moments in bf16 too.\n"
      "GB/s count what an update cannot avoid: each state once in and out, the gradient in, 16-bit\n"
      "parameters out. Ceiling: the same loads and stores with one addition each, over the same memory in\n"
      "the same rounds, by plain or streaming stores, whichever is faster. Before a case is timed, pieces "
      "of\n"
      "one such update are compared with the scalar kernel's, bit by bit. A size that does not fit in "
      "memory\n"
      "is named and left out.\n"
      "Ctrl-C prints what is measured so far and ends with status 130.\n"
      "Exit status: 0 done, 1 wrong bits, 2 wrong usage, 3 does not fit, 130 stopped.\n\n"
      "Example: what do 16 million parameters cost with 8-bit moments?\n"
      "  headrace bench adam --format bf16,int8-moments --elements 16Mi --seconds 10");
  command->callback([flags, &status] { status = run_adam(*flags); });
}

}  // namespace headrace::cli
