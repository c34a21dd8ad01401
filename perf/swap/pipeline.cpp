// Question: does an optimizer step with its states on NVMe take no longer than the disk and the processor
// need? Ceiling: the closed form of a swapped step, whose r + w come from the same pipeline with an update
// that changes nothing, in alternation with the real one, and whose c is the update of blocks in memory.
//
// Every block is written twice before the first round, so that no extent of either generation is new. The
// ratio is the median over rounds of real / closed form, each from its own round's null step.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "headrace/optimizer_blocks.h"
#include "headrace/train.h"
#include "src/tune/closed_form.h"
#include "src/tune/resident_update.h"
#include "src/tune/statistics.h"
#include "src/tune/swap_pipeline.h"
#include "src/tune/tune_files.h"

namespace headrace::tune {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string folder, block = "6MiB", request = "1MiB", cache = "0", io = "auto", durability = "step", json,
                      config;
  std::uint64_t parameters = 256 << 20;
  std::uint32_t buffers = 16, depth = 32;
  int rounds = 9, threads = 0;
};

IoKind io_kind(const std::string& name) {
  if (name == "io_uring") return IoKind::io_uring;
  if (name == "threads") return IoKind::threads;
  if (name == "auto") return IoKind::automatic;
  throw UsageError(fmt::format("--io {} is not one of auto, io_uring, threads.", name));
}

SwapPipelineOptions options_of_flags(const Arguments& arguments) {
  return {.point = {.block_bytes = parse_bytes(arguments.block, "--block"),
                    .buffers = arguments.buffers,
                    .queue_depth = arguments.depth,
                    .request_bytes = parse_bytes(arguments.request, "--request"),
                    .io = io_kind(arguments.io)},
          .durability = arguments.durability == "none" ? Durability::none : Durability::step};
}

// A fragment of `headrace tune`, as `headrace train` understands it.
SwapPipelineOptions options_of_config(const std::string& path) {
  ConfigDraft draft;
  draft.read_file(path);
  draft.set_flag("model", "gpt2-mini");
  const ResolvedOptions resolved = draft.resolve({});
  const SwapPoint usual;
  return {.point = {.block_bytes = resolved.engine.swap_block_bytes,
                    .buffers = resolved.engine.swap_buffers,
                    .queue_depth = resolved.io_depth.value_or(usual.queue_depth),
                    .request_bytes = resolved.io_request_bytes.value_or(usual.request_bytes),
                    .io = resolved.io},
          .durability = resolved.engine.durability};
}

SwapPipelineOptions options_of(const Arguments& arguments, const TuneFiles& files) {
  SwapPipelineOptions options =
      arguments.config.empty() ? options_of_flags(arguments) : options_of_config(arguments.config);
  options.parameters = arguments.parameters;
  options.folders = files.paths_of("store");
  options.cache_bytes = parse_bytes(arguments.cache, "--cache");
  return options;
}

struct KernelBytes {
  Bytes read = 0, written = 0;
};
KernelBytes kernel_bytes() {
  constexpr Bytes sector = 512;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {static_cast<Bytes>(usage.ru_inblock) * sector, static_cast<Bytes>(usage.ru_oublock) * sector};
}

struct Round {
  SwapStep real, null;
  double closed_form = 0;
  double ratio() const { return real.seconds / closed_form; }
};

Round measure_round(SwapPipeline& pipeline, int number, double compute, std::uint32_t buffers) {
  Round round;
  const auto real = [&] { round.real = pipeline.step(UpdateKind::adam); };
  if (number % 2 == 0) real();
  round.null = pipeline.step(UpdateKind::null);
  if (number % 2 == 1) real();
  round.closed_form = step_over_null(round.null.seconds, compute, pipeline.blocks(), buffers);
  return round;
}

template <class Value>
double median_of(const std::vector<Round>& rounds, const Value& value) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(value(round));
  return median(std::move(values));
}

int run(const Arguments& arguments) {
  if (arguments.threads > 0) set_cpu_threads(arguments.threads);
  const TuneFiles files({arguments.folder});
  const SwapPipelineOptions options = options_of(arguments, files);
  SwapPipeline pipeline(options);
  const double parameters = static_cast<double>(options.parameters);
  fmt::print("{} parameters in {} blocks; {}; {} threads; {} MiB of host buffers\n", options.parameters,
             pipeline.blocks(), text_of(options.point), cpu_threads(), pipeline.host_bytes() >> 20);
  (void)pipeline.step(UpdateKind::adam);  // writes the second generation
  (void)pipeline.step(UpdateKind::null);
  const Bytes peak_rss = peak_rss_bytes();  // of the pipeline alone
  const double compute = resident_update_seconds(block_numel(options.point.block_bytes), 1.0);
  const KernelBytes before = kernel_bytes();
  std::vector<Round> rounds;
  for (int r = 0; r < arguments.rounds; ++r) {
    rounds.push_back(measure_round(pipeline, r, compute, options.point.buffers));
    const Round& round = rounds.back();
    fmt::print(
        "round {}: step {:.3f} s (waits for I/O {:.3f}, updates {:.3f}), null {:.3f} s, closed form {:.3f} "
        "s, "
        "ratio {:.3f}\n",
        r + 1, round.real.seconds, round.real.nvme_stall_seconds, round.real.update_seconds,
        round.null.seconds, round.closed_form, round.ratio());
    std::fflush(stdout);
  }
  const KernelBytes after = kernel_bytes();
  std::vector<double> ratios;
  for (const Round& round : rounds) ratios.push_back(round.ratio());
  const double ratio = median(ratios), deviation = median_absolute_deviation(ratios);
  const double step = median_of(rounds, [](const Round& r) { return r.real.seconds; });
  const double steps = 2.0 * arguments.rounds;
  const Json result = {
      {"benchmark", "swap_pipeline"},
      {"parameters", options.parameters},
      {"blocks", pipeline.blocks()},
      {"io", pipeline.io_name()},
      {"ratio", ratio},
      {"ratio_deviation", deviation},
      {"step_seconds", step},
      {"null_step_seconds", median_of(rounds, [](const Round& r) { return r.null.seconds; })},
      {"closed_form_seconds", median_of(rounds, [](const Round& r) { return r.closed_form; })},
      {"nvme_stall_seconds", median_of(rounds, [](const Round& r) { return r.real.nvme_stall_seconds; })},
      {"update_seconds", median_of(rounds, [](const Round& r) { return r.real.update_seconds; })},
      {"compute_seconds_a_block", compute},
      {"parameters_per_second", parameters / step},
      {"read_bytes_a_parameter", static_cast<double>(rounds.front().real.read_bytes) / parameters},
      {"written_bytes_a_parameter", static_cast<double>(rounds.front().real.written_bytes) / parameters},
      {"kernel_read_bytes_a_parameter", static_cast<double>(after.read - before.read) / steps / parameters},
      {"kernel_written_bytes_a_parameter",
       static_cast<double>(after.written - before.written) / steps / parameters},
      {"host_buffer_bytes", pipeline.host_bytes()},
      {"peak_rss_bytes", peak_rss},
      {"rounds", arguments.rounds}};
  fmt::print("step / closed form: median {:.3f}, MAD {:.3f}; {:.1f} M parameters/s\n", ratio, deviation,
             parameters / step * 1e-6);
  fmt::print("bytes a parameter and step: counters {:.2f} read + {:.2f} written, kernel {:.2f} + {:.2f}\n",
             result["read_bytes_a_parameter"].get<double>(),
             result["written_bytes_a_parameter"].get<double>(),
             result["kernel_read_bytes_a_parameter"].get<double>(),
             result["kernel_written_bytes_a_parameter"].get<double>());
  fmt::print("memory: {} MiB of buffers, {} MiB resident at most\n", pipeline.host_bytes() >> 20,
             peak_rss >> 20);
  if (!arguments.json.empty()) std::ofstream(arguments.json) << result.dump(1) << '\n';
  return 0;
}

}  // namespace
}  // namespace headrace::tune

int main(int argc, char** argv) {
  headrace::tune::Arguments arguments;
  CLI::App app("An optimizer step with its states on NVMe, against the closed form of its parts.");
  app.add_option("--folder", arguments.folder, "existing folder on the drive to measure")->required();
  app.add_option("--parameters", arguments.parameters, "default 268435456");
  app.add_option("--rounds", arguments.rounds, "pairs of a real and a null step (default 9)");
  app.add_option("--block", arguments.block, "default 6MiB");
  app.add_option("--buffers", arguments.buffers, "default 16");
  app.add_option("--depth", arguments.depth, "requests in flight (default 32)");
  app.add_option("--request", arguments.request, "default 1MiB");
  app.add_option("--cache", arguments.cache, "host memory for blocks that are not read (default 0)");
  app.add_option("--io", arguments.io, "auto, io_uring or threads (default auto)");
  app.add_option("--durability", arguments.durability, "step or none (default step)");
  app.add_option("--threads", arguments.threads, "of the update (default: the machine's)");
  app.add_option("--config", arguments.config, "fragment of `headrace tune`, in place of the flags above");
  app.add_option("--json", arguments.json, "write the figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    return headrace::tune::run(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "perf_swap_pipeline: {}\n", error.what());
    return 1;
  }
}
