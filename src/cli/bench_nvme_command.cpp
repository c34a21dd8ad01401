#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "headrace/backends.h"
#include "headrace/errors.h"
#include "headrace/log.h"
#include "headrace/nvme_bench.h"
#include "src/cli/bench_flags.h"
#include "src/cli/bench_nvme_output.h"
#include "src/cli/interrupt.h"
#include "src/cli/json_text.h"

namespace headrace::cli {
namespace {

constexpr Bytes largest_block = Bytes{1} << 30;
constexpr std::uint32_t largest_depth = 1024;
constexpr double least_seconds = 1, most_seconds = 86400;

using Values = std::vector<std::string>;

struct NvmeFlags {
  Values paths, operations, accesses, blocks, depths, read_share, file_size, seconds, sustained, io,
      host_memory;
  bool require_io_uring = false, poll_completions = false, poll_submissions = false;
  bool check_every_byte = false, json = false, quiet = false;
};

template <class Value>
void sort_unique(std::vector<Value>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

std::vector<Bytes> blocks_of(const Values& given) {
  if (given.empty()) return default_nvme_blocks();
  std::vector<Bytes> blocks;
  for (const std::string& word : words_of("--block", given)) {
    blocks.push_back(parse_bytes(word, "--block"));
    if (blocks.back() == 0 || blocks.back() % nvme_block_quantum != 0 || blocks.back() > largest_block)
      throw UsageError(fmt::format("--block: \"{}\" is not a multiple of {} up to {}.", shortened(word),
                                   size_text(nvme_block_quantum), size_text(largest_block)));
  }
  sort_unique(blocks);
  return blocks;
}

std::vector<std::uint32_t> depths_of(const Values& given) {
  if (given.empty()) return default_nvme_depths();
  std::vector<std::uint32_t> depths;
  for (const std::string& word : words_of("--depth", given)) {
    std::uint32_t depth = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), depth);
    if (error != std::errc{} || end != word.data() + word.size() || depth == 0 || depth > largest_depth)
      throw UsageError(
          fmt::format("--depth: \"{}\" is not a whole number from 1 to {}.", shortened(word), largest_depth));
    depths.push_back(depth);
  }
  sort_unique(depths);
  return depths;
}

// `known` in the order of their enum.
template <class Enum>
std::vector<Enum> names_of(const std::string& flag, const Values& given,
                           std::span<const std::string_view> known) {
  std::vector<Enum> values;
  for (const std::size_t place : places_of(flag, given, known)) values.push_back(static_cast<Enum>(place));
  return values;
}

std::vector<std::string> paths_of(const Values& given) {
  if (given.empty())
    throw UsageError("--path is required: a folder on the drive to measure; several for several drives.");
  for (const std::string& path : given) (void)only_value("--path", {path});
  return given;
}

NvmeBenchOptions options_of(const NvmeFlags& flags) {
  NvmeBenchOptions options{.paths = paths_of(flags.paths),
                           .blocks = blocks_of(flags.blocks),
                           .depths = depths_of(flags.depths),
                           .check_every_byte = flags.check_every_byte};
  if (!flags.operations.empty())
    options.operations = names_of<NvmeOperation>("--operation", flags.operations,
                                                 std::array<std::string_view, 3>{"read", "write", "mixed"});
  if (!flags.accesses.empty())
    options.accesses = names_of<NvmeAccess>("--access", flags.accesses,
                                            std::array<std::string_view, 2>{"sequential", "random"});
  if (!flags.read_share.empty())
    options.read_share =
        parse_seconds(only_value("--read-share", flags.read_share), "--read-share", 0.01, 0.99);
  if (!flags.file_size.empty()) {
    options.file_bytes = parse_bytes(only_value("--file-size", flags.file_size), "--file-size");
    if (options.file_bytes == 0) throw UsageError("--file-size: a file of 0 bytes gives nothing to measure.");
  }
  if (!flags.seconds.empty())
    options.seconds =
        parse_seconds(only_value("--seconds", flags.seconds), "--seconds", least_seconds, most_seconds);
  if (!flags.sustained.empty())
    options.sustained_seconds =
        parse_seconds(only_value("--sustained", flags.sustained), "--sustained", least_seconds, most_seconds);
  if (!flags.sustained.empty() &&
      (!flags.seconds.empty() || !flags.operations.empty() || !flags.accesses.empty()))
    throw UsageError(
        "--sustained writes for its own time, in file order, and no table is measured: leave --seconds, "
        "--operation and --access out.");
  return options;
}

Bytes memory_of(const NvmeBenchOptions& options) {
  return nvme_bench_memory(options.blocks.back(), options.depths.back(), options.paths.size());
}

template <class Value>
bool drop_last(std::vector<Value>& values) {
  if (values.size() < 2) return false;
  values.pop_back();
  return true;
}

// The shorter lists that fit, as flags.
std::vector<std::string> what_fits(const NvmeBenchOptions& options, Bytes limit) {
  std::vector<std::string> changes;
  NvmeBenchOptions fewer = options;
  while (memory_of(fewer) > limit && drop_last(fewer.blocks)) {
  }
  if (memory_of(fewer) <= limit) {
    std::vector<std::string> texts;
    for (const Bytes block : fewer.blocks) texts.push_back(size_text(block));
    changes.push_back(fmt::format("--block {}", fmt::join(texts, ",")));
  }
  fewer = options;
  while (memory_of(fewer) > limit && drop_last(fewer.depths)) {
  }
  if (memory_of(fewer) <= limit) changes.push_back(fmt::format("--depth {}", fmt::join(fewer.depths, ",")));
  return changes;
}

Bytes require_memory(const NvmeFlags& flags, const NvmeBenchOptions& options) {
  const Bytes need = memory_of(options), available = available_host_memory();
  Bytes limit = available;
  if (!flags.host_memory.empty()) {
    limit = parse_bytes(only_value("--host-memory", flags.host_memory), "--host-memory");
    if (limit == 0)
      throw UsageError("--host-memory: a limit of 0 bytes leaves no memory. Leave it out for no limit.");
  }
  if (need <= std::min(limit, available)) return need;
  std::vector<std::string> changes = what_fits(options, std::min(limit, available));
  if (limit < need && need <= available)
    changes.push_back(fmt::format("--host-memory {}", size_text(round_up(need, Bytes{1} << 20))));
  throw DoesNotFit(fmt::format(
      "the benchmark does not fit: {} blocks of {} in flight{} need {} of host memory ({} {}).{}",
      options.depths.back(), size_text(options.blocks.back()),
      options.paths.size() > 1 ? fmt::format(" on each of {} paths", options.paths.size()) : "",
      format_bytes(need), limit < available ? "limit" : "available", format_bytes(std::min(limit, available)),
      changes.empty() ? " Give smaller --block or --depth."
                      : fmt::format(" It fits with {}.", fmt::join(changes, ", or with "))));
}

// Fills options.engine.
std::unique_ptr<IoEngine> engine_of(const NvmeFlags& flags, NvmeBenchOptions& options) {
  IoKind kind = IoKind::automatic;
  if (!flags.io.empty()) {
    const auto kinds = names_of<IoKind>("--io", {only_value("--io", flags.io)},
                                        std::array<std::string_view, 3>{"auto", "io_uring", "threads"});
    kind = kinds.front();
  }
  if (flags.require_io_uring && kind == IoKind::threads)
    throw UsageError("--require-io-uring and --io threads exclude each other: keep one of them.");
  if (kind == IoKind::threads && (flags.poll_completions || flags.poll_submissions))
    throw UsageError("--poll-completions and --poll-submissions are of io_uring: leave --io threads out.");
  options.engine = nvme_engine_options(options);
  options.engine.poll_completions = flags.poll_completions;
  options.engine.poll_submissions = flags.poll_submissions;
  return make_io(flags.require_io_uring ? IoKind::io_uring : kind, options.engine);
}

// `run`: the part of the report that every kind has.
template <class Report>
int finish(const Report& report, const NvmeReport& run, const NvmeFlags& flags, double seconds) {
  if (report.results.empty() && run.stopped) {
    fmt::print(stderr,
               "headrace: stopped before anything was measured; the space in the paths is free again\n");
    return Interrupt::exit_status;
  }
  fmt::print("{}", flags.json ? json_text(to_json(report)) : to_text(report));
  if (!run.failures.empty()) throw Error(fmt::format("{}", fmt::join(run.failures, "\n")));
  if (report.results.empty())
    throw DoesNotFit(fmt::format(
        "the {:g} s of --seconds were over before any case was measured: --seconds {:g} would do, "
        "or give smaller --block or --depth.",
        seconds, run.seconds_needed));
  return run.stopped ? Interrupt::exit_status : 0;
}

int run_nvme(const NvmeFlags& flags) {
  const LaunchInfo launch = launch_info();
  if (launch.size > 1)
    throw UsageError(fmt::format(
        "bench nvme measures the drives from one process, but {} started {} ranks. Start it alone.",
        launch.launcher, launch.size));
  if (flags.quiet) set_log_level(LogLevel::quiet);
  NvmeBenchOptions options = options_of(flags);
  MemoryBudget host("host", require_memory(flags, options));
  const std::unique_ptr<IoEngine> io = engine_of(flags, options);
  const Interrupt interrupt;
  NvmeProgress progress(!flags.quiet);
  const NvmeControl control{.stop_requested = [&] { return interrupt.requested(); },
                            .progress = [&](double done, std::string_view now) { progress.show(done, now); },
                            .say = [&](std::string_view line) { progress.say(line); }};
  if (options.sustained_seconds > 0) {
    const NvmeSustainedReport report = bench_nvme_sustained(*io, host, options, control);
    progress.end();
    return finish(report, report.run, flags, options.sustained_seconds);
  }
  const NvmeReport report = bench_nvme(*io, host, options, control);
  progress.end();
  return finish(report, report, flags, options.seconds);
}

void add_flags(CLI::App& command, NvmeFlags& flags) {
  const auto add = [&](const char* flag, Values& values, const char* meaning, const char* type) {
    collect_values(command.add_option(flag, values, meaning))->type_name(type);
  };
  add("--path,--swap-path", flags.paths, "folder on the drive to measure; repeat it for several drives",
      "DIR");
  add("--block", flags.blocks, "block sizes, multiples of 4KiB (default 128KiB,1MiB,8MiB)", "SIZE,SIZE,...");
  add("--depth", flags.depths, "blocks in flight on each path (default 1,8,32)", "N,N,...");
  add("--operation", flags.operations, "any of read, write, mixed (default all)", "NAME,...");
  add("--access", flags.accesses, "sequential, random or both (default both)", "NAME,...");
  add("--read-share", flags.read_share, "share of reads of mixed cases (default 0.5)", "SHARE");
  add("--seconds", flags.seconds, "time of the whole benchmark (default 60)", "SECONDS");
  add("--sustained", flags.sustained,
      "instead of the table: writes for so long, with the largest block and depth", "SECONDS");
  add("--file-size", flags.file_size, "file of each path (default 4GiB, or what space and time allow)",
      "SIZE");
  add("--host-memory", flags.host_memory, "most that the buffers may take (default what is needed)", "SIZE");
  add("--io", flags.io, "auto, io_uring or threads (default auto)", "ENGINE");
  command.add_flag("--require-io-uring", flags.require_io_uring, "fail where io_uring is refused");
  command.add_flag("--poll-completions", flags.poll_completions, "poll the device for completions (IOPOLL)");
  command.add_flag("--poll-submissions", flags.poll_submissions,
                   "a thread of the kernel takes submissions (SQPOLL)");
  command.add_flag("--check-every-byte", flags.check_every_byte,
                   "check each block that is read byte by byte, not one of 16");
  command.add_flag("--json", flags.json, "print one JSON object");
  command.add_flag("--quiet", flags.quiet, "no steps and no progress on stderr");
}

}  // namespace

void add_bench_nvme(CLI::App& bench, int& status) {
  CLI::App* command = bench.add_subcommand("nvme", "what a drive gives, by operation, block size and depth");
  const auto flags = std::make_shared<NvmeFlags>();
  add_flags(*command, *flags);
  command->footer(
      "Blocks move between the drive and memory through the engine of a training run; no root is needed. "
      "The\n"
      "file is written once with noise before anything is timed, and what is read is checked. It has no "
      "name\n"
      "while in use, so its space is free again however the program ends.\n"
      "Rates are medians over alternating rounds, in GB/s (1e9 bytes), MAD their median absolute\n"
      "deviation (- where there was one round; of an even count the median is the mean of the middle two).\n"
      "Depth is blocks in flight at the drive, as in fio; a note says where the engine has fewer there.\n"
      "Latency is from submission until the block is seen to be there, whichever ends first. CPU s/GB leaves "
      "out\n"
      "making and checking the data. Writing wears the drive: the last line says how much was written.\n"
      "source: \"direct\"; \"buffered\" where the file system refuses direct I/O; \"cached\" where the "
      "bytes\n"
      "came from memory, so that the rate is none of the drive's.\n"
      "--sustained prints a row an interval. \"first\" is the highest median of 3 rows in a row of the "
      "first\n"
      "third: the fast cache, not the first row. \"steady\" is the median of the last third. In JSON "
      "\"value\"\n"
      "is steady, and \"ceiling\" the larger of both.\n"
      "Ctrl-C prints what is measured so far and ends with status 130; a drive that fails on the way ends\n"
      "its own cases, and the status is 1.\n"
      "Exit status: 0 done, 1 wrong data or a failed drive, 2 wrong usage, 3 does not fit in space, memory "
      "or\n"
      "time, 130 stopped.\n\n"
      "Examples: a table in 30 seconds; what two drives still take when their fast caches are full\n"
      "  headrace bench nvme --path /mnt/nvme0 --seconds 30\n"
      "  headrace bench nvme --path /mnt/nvme0 --path /mnt/nvme1 --sustained 120");
  command->callback([flags, &status] { status = run_nvme(*flags); });
}

}  // namespace headrace::cli
