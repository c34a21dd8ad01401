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
#include "headrace/statistics.h"
#include "headrace/train.h"
#include "src/tune/closed_form.h"
#include "src/tune/resident_update.h"
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
  const auto real = [&] { round.real = pipeline.step(UpdateKind::real); };
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

void print_round(int number, const Round& round) {
  fmt::print(
      "round {}: step {:.3f} s (waits for I/O {:.3f}, updates {:.3f}), null {:.3f} s, closed form {:.3f} s, "
      "ratio {:.3f}\n",
      number, round.real.seconds, round.real.nvme_stall_seconds, round.real.update_seconds,
      round.null.seconds, round.closed_form, round.ratio());
  std::fflush(stdout);
}

struct Measured {
  std::vector<Round> rounds;
  double compute = 0;  // seconds of a block's update in memory
  KernelBytes kernel;  // of all rounds
  Bytes peak_rss = 0;  // of the pipeline alone
};

Measured measure(SwapPipeline& pipeline, const SwapPoint& point, int rounds) {
  (void)pipeline.step(UpdateKind::real);  // writes the second generation
  (void)pipeline.step(UpdateKind::null);
  Measured measured;
  measured.peak_rss = peak_rss_bytes();
  measured.compute = resident_update_seconds({}, block_numel(point.block_bytes, {}), 1.0);
  const KernelBytes before = kernel_bytes();
  for (int r = 0; r < rounds; ++r) {
    measured.rounds.push_back(measure_round(pipeline, r, measured.compute, point.buffers));
    print_round(r + 1, measured.rounds.back());
  }
  const KernelBytes after = kernel_bytes();
  measured.kernel = {after.read - before.read, after.written - before.written};
  return measured;
}

Json result_of(const Measured& measured, const SwapPipeline& pipeline, std::uint64_t parameters) {
  const std::vector<Round>& rounds = measured.rounds;
  std::vector<double> ratios;
  for (const Round& round : rounds) ratios.push_back(round.ratio());
  const double step = median_of(rounds, [](const Round& r) { return r.real.seconds; });
  const auto a_parameter = [&](Bytes bytes, double steps) {
    return static_cast<double>(bytes) / steps / static_cast<double>(parameters);
  };
  const double steps = 2.0 * static_cast<double>(rounds.size());
  return {{"benchmark", "swap_pipeline"},
          {"parameters", parameters},
          {"blocks", pipeline.blocks()},
          {"io", pipeline.io_name()},
          {"ratio", median(ratios)},
          {"ratio_deviation", median_deviation(ratios)},
          {"step_seconds", step},
          {"null_step_seconds", median_of(rounds, [](const Round& r) { return r.null.seconds; })},
          {"closed_form_seconds", median_of(rounds, [](const Round& r) { return r.closed_form; })},
          {"nvme_stall_seconds", median_of(rounds, [](const Round& r) { return r.real.nvme_stall_seconds; })},
          {"update_seconds", median_of(rounds, [](const Round& r) { return r.real.update_seconds; })},
          {"compute_seconds_a_block", measured.compute},
          {"parameters_per_second", static_cast<double>(parameters) / step},
          {"read_bytes_a_parameter", a_parameter(rounds.front().real.read_bytes, 1)},
          {"written_bytes_a_parameter", a_parameter(rounds.front().real.written_bytes, 1)},
          {"kernel_read_bytes_a_parameter", a_parameter(measured.kernel.read, steps)},
          {"kernel_written_bytes_a_parameter", a_parameter(measured.kernel.written, steps)},
          {"host_buffer_bytes", pipeline.host_bytes()},
          {"peak_rss_bytes", measured.peak_rss},
          {"rounds", rounds.size()}};
}

void print_result(const Json& result) {
  const auto number = [&](const char* key) { return result[key].get<double>(); };
  fmt::print("step / closed form: median {:.3f}, MAD {:.3f}; {:.1f} M parameters/s\n", number("ratio"),
             number("ratio_deviation"), number("parameters_per_second") * 1e-6);
  fmt::print("bytes a parameter and step: counters {:.2f} read + {:.2f} written, kernel {:.2f} + {:.2f}\n",
             number("read_bytes_a_parameter"), number("written_bytes_a_parameter"),
             number("kernel_read_bytes_a_parameter"), number("kernel_written_bytes_a_parameter"));
  fmt::print("memory: {} MiB of buffers, {} MiB resident at most\n",
             result["host_buffer_bytes"].get<Bytes>() >> 20, result["peak_rss_bytes"].get<Bytes>() >> 20);
}

int run(const Arguments& arguments) {
  if (arguments.threads > 0) set_cpu_threads(arguments.threads);
  const TuneFiles files({arguments.folder});
  const SwapPipelineOptions options = options_of(arguments, files);
  SwapPipeline pipeline(options);
  fmt::print("{} parameters in {} blocks; {}; {} threads; {} MiB of host buffers\n", options.parameters,
             pipeline.blocks(), text_of(options.point), cpu_threads(), pipeline.host_bytes() >> 20);
  const Measured measured = measure(pipeline, options.point, arguments.rounds);
  const Json result = result_of(measured, pipeline, options.parameters);
  print_result(result);
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
