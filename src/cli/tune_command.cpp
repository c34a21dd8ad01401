// `headrace tune`: finds block size, buffers, queue depth, request size and I/O engine for optimizer states
// on NVMe.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "headrace/bench.h"
#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "headrace/folders.h"
#include "headrace/memory.h"
#include "headrace/tune.h"
#include "src/cli/bench_flags.h"
#include "src/cli/commands.h"
#include "src/cli/flag_values.h"
#include "src/cli/interrupt.h"
#include "src/cli/tune_screen.h"

namespace headrace::cli {
namespace {

namespace fs = std::filesystem;

struct TuneFlags {
  std::vector<std::string> swap_paths, parity, seconds, host_memory, parameters, durability, optimizer,
      momentum, master_dtype, moments, threads, endurance, json, to;
  bool amsgrad = false;
};

Durability durability_of(const std::vector<std::string>& given) {
  return choice_of("--durability", given, {"step", "none"}) == 0 ? Durability::step : Durability::none;
}

Bytes memory_limit(const std::vector<std::string>& given) {
  constexpr Bytes usual = Bytes{1} << 30, least = Bytes{4} << 20;
  const Bytes available = available_host_memory();
  if (given.empty()) return std::min(usual, available / 2);
  const Bytes limit = parse_bytes(only_value("--host-memory", given), "--host-memory");
  if (limit < least)
    throw UsageError(fmt::format("--host-memory: {} is too little for any point. Give at least {}.",
                                 size_text(limit), size_text(least)));
  if (limit > available)
    throw DoesNotFit(fmt::format("--host-memory {} is more than the {} that this machine has available.",
                                 size_text(limit), format_bytes(available)));
  return limit;
}

bool is_text(const std::string& name) {
  try {
    (void)nlohmann::json(name).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

std::vector<std::string> paths_of(const std::vector<std::string>& given) {
  if (given.empty())
    throw UsageError(
        "no drive is given: --swap-path DIR, a folder on the drive that is to hold optimizer states.");
  for (const std::string& path : given) {
    require_usable_folder("--swap-path", path, "on the drive to tune for");
    if (!is_text(path))
      throw UsageError(
          "--swap-path: the value is not UTF-8 text, and neither a swap store nor a configuration can hold "
          "it. Give the folder another name, or a link that has one.");
  }
  require_different_folders("--swap-path", given);
  return given;
}

std::uint32_t parity_of(const TuneFlags& flags) {
  if (flags.parity.empty()) return 0;
  const auto parity = static_cast<std::uint32_t>(
      number_of("--swap-parity", only_value("--swap-parity", flags.parity), 0, 16, true));
  if (parity > 0 && parity >= flags.swap_paths.size())
    throw UsageError(
        fmt::format("--swap-parity {} needs at least {} swap paths, {} given.", parity, parity + 1,
                    flags.swap_paths.size() == 1 ? "1 is" : fmt::format("{} are", flags.swap_paths.size())));
  return parity;
}

void read_states(const TuneFlags& flags, TuneOptions& options) {
  using enum OptimizerKind;
  constexpr OptimizerKind kinds[] = {adam, adam, adagrad, lion, sgd};
  OptimizerArguments optimizer;
  optimizer.kind =
      kinds[choice_of("--optimizer", flags.optimizer, {"adamw", "adam", "adagrad", "lion", "sgd"})];
  optimizer.amsgrad = flags.amsgrad;
  if (!flags.momentum.empty())
    optimizer.momentum = number_of("--momentum", only_value("--momentum", flags.momentum), 0, 1, false);
  if (optimizer.amsgrad && optimizer.kind != adam)
    throw UsageError("--amsgrad has a meaning for --optimizer adamw and adam alone.");
  if (!flags.momentum.empty() && optimizer.kind != sgd)
    throw UsageError("--momentum has a meaning for --optimizer sgd alone.");
  const auto master =
      static_cast<MasterDType>(choice_of("--master-dtype", flags.master_dtype, {"fp32", "bf16"}));
  const auto moments =
      static_cast<MomentDType>(choice_of("--moments", flags.moments, {"fp32", "bf16", "int8"}));
  options.states = format_of(optimizer, master, moments);
  if (!flags.moments.empty() && moment_count(options.states) == 0)
    throw UsageError("--moments has a meaning for optimizers that keep moments: SGD does with --momentum.");
  options.momentum = optimizer.momentum;
}

TuneOptions options_of(const TuneFlags& flags) {
  constexpr double shortest = 2, longest = 86400, most_parameters = 1e13;
  TuneOptions options;
  options.swap_paths = paths_of(flags.swap_paths);
  options.parity = parity_of(flags);
  if (!flags.seconds.empty())
    options.seconds = parse_seconds(only_value("--seconds", flags.seconds), "--seconds", shortest, longest);
  options.host_memory_bytes = memory_limit(flags.host_memory);
  if (!flags.parameters.empty())
    options.parameters = static_cast<std::uint64_t>(
        number_of("--parameters", only_value("--parameters", flags.parameters), 1, most_parameters, true));
  options.durability = durability_of(flags.durability);
  read_states(flags, options);
  if (!flags.threads.empty())
    options.threads =
        static_cast<int>(number_of("--threads", only_value("--threads", flags.threads), 1, 4096, true));
  return options;
}

// Drives are sold by the terabytes (1e12) that may be written.
constexpr double terabyte = 1e12;
double endurance_bytes(const TuneFlags& flags) {
  if (flags.endurance.empty()) return 0;
  return terabyte *
         number_of("--endurance-tbw", only_value("--endurance-tbw", flags.endurance), 1e-3, 1e9, false);
}

// Found out before the time is spent, not after.
std::string output_file(const std::string& flag, const std::vector<std::string>& given) {
  if (given.empty()) return {};
  const std::string& path = only_value(flag, given);
  std::ofstream file(path, std::ios::app);
  if (!file)
    throw UsageError(
        fmt::format("{} {} cannot be written: {}. Give a file in a folder that exists and that this "
                    "user may write to.",
                    flag, path, std::strerror(errno)));
  return path;
}

// The report and the configuration.
std::pair<std::string, std::string> output_files(const TuneFlags& flags) {
  const std::string json = output_file("--json", flags.json), fragment = output_file("--to", flags.to);
  std::error_code error;
  if (!json.empty() && !fragment.empty() && fs::equivalent(json, fragment, error))
    throw UsageError(fmt::format("--json and --to are both {}. Give each a file of its own.", json));
  return {json, fragment};
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw Error(fmt::format("{} could not be written: {}.", path, std::strerror(errno)));
}

// A file that was opened for nothing goes away.
void remove_if_empty(const std::string& path) {
  std::error_code error;
  if (!path.empty() && fs::is_regular_file(path, error) && fs::file_size(path, error) == 0)
    fs::remove(path, error);
}

std::string states_on_fewer_paths(const TuneReport& report, const TuneOptions& options) {
  const SwapPlacement& placement = report.placements[report.best->placement];
  if (placement.paths.size() == options.swap_paths.size()) return "";
  return fmt::format(" (states on {} alone)", placement.name);
}

int finish(const TuneFlags& flags, const TuneOptions& options, const TuneReport& report,
           const std::string& json, const std::string& fragment) {
  const double endurance = endurance_bytes(flags);
  if (!json.empty()) write_file(json, tune_json(report, options, endurance));
  if (!report.best) {
    remove_if_empty(fragment);
    if (report.stopped) return Interrupt::exit_status;
    if (report.trials.empty())
      throw DoesNotFit(fmt::format("no point fits into {} of host memory. Give a larger --host-memory.",
                                   format_bytes(options.host_memory_bytes)));
    throw Error(fmt::format("no point ran. The first one failed: {}", report.trials.front().failure));
  }
  fmt::print("{}", tune_text(report, options, endurance));
  if (!fragment.empty()) {
    write_file(fragment, config_fragment(report, options));
    fmt::print("wrote {}{}: headrace train --config {} ...\n", fragment,
               states_on_fewer_paths(report, options), fragment);
  }
  return report.stopped ? Interrupt::exit_status : 0;
}

int run_tune(const TuneFlags& flags) {
  if (const LaunchInfo launch = launch_info(); launch.size > 1)
    throw UsageError(
        fmt::format("tune searches with one process, but {} started {} ranks. Start it alone; the fragment "
                    "serves all ranks.",
                    launch.launcher, launch.size));
  const TuneOptions options = options_of(flags);
  (void)endurance_bytes(flags);
  if (options.threads > 0) set_cpu_threads(options.threads);
  const auto [json, fragment] = output_files(flags);
  const Interrupt interrupt(Interrupt::Handles::termination_too);
  TuneScreen screen(options);
  const TuneControl control{
      .stop_requested = [&] { return interrupt.requested(); },
      .stage_began = [&](std::string_view stage, double left) { screen.stage_began(stage, left); },
      .trial_began = [&](const SwapPoint& point, double left) { screen.trial_began(point, left); },
      .trial_ended = [&](const TuneTrial& trial) { screen.trial_ended(trial); },
      .note = [&](const std::string& note) { screen.note(note); }};
  try {
    const TuneReport report = tune_swap(options, control);
    return finish(flags, options, report, json, fragment);
  } catch (...) {
    remove_if_empty(json);
    remove_if_empty(fragment);
    throw;
  }
}

}  // namespace

void add_tune(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("tune", "find the fastest way to swap optimizer states on a drive");
  const auto flags = std::make_shared<TuneFlags>();
  const auto add = [&](const char* flag, std::vector<std::string>& values, const char* meaning,
                       const char* type) {
    collect_values(command->add_option(flag, values, meaning))->type_name(type);
  };
  add("--swap-path", flags->swap_paths,
      "existing folder on the drive that is to hold optimizer states (required); may be repeated", "DIR");
  add("--swap-parity", flags->parity, "swap paths that the run may lose (default 0)", "N");
  add("--seconds", flags->seconds, "time for everything (default 60)", "SECONDS");
  add("--host-memory", flags->host_memory, "most that the swap buffers may take (default 1GiB)", "SIZE");
  add("--parameters", flags->parameters, "of the run to predict a step for, like 7e9", "N");
  add("--durability", flags->durability, "of the run: step or none (default step)", "step|none");
  add("--optimizer", flags->optimizer, "of the run: adamw, adam, adagrad, lion or sgd (default adamw)",
      "NAME");
  command->add_flag("--amsgrad", flags->amsgrad, "of the run: Adam keeps a third moment");
  add("--momentum", flags->momentum, "of the run's SGD; 0 keeps no moment (default 0)", "X");
  add("--master-dtype", flags->master_dtype, "of the run: fp32 or bf16 (default fp32)", "TYPE");
  add("--moments", flags->moments, "of the run: fp32, bf16 or int8 (default fp32)", "TYPE");
  add("--threads", flags->threads, "CPU threads of the update (default: this machine's)", "N");
  add("--endurance-tbw", flags->endurance,
      "terabytes that the drive, or all of them together, may be written", "N");
  add("--to", flags->to, "write a configuration for train --config here", "FILE");
  add("--json", flags->json, "write the report here", "FILE");
  command->footer(
      "Each trial is the engine's own optimizer step (reads, update, writes, commit) of synthetic "
      "parameters\n"
      "with their states on the drive. First the drive's rate is measured, which sizes the trials; then "
      "come the\n"
      "defaults, other block sizes and buffers, the neighbours of the best, and at last the best, the "
      "runner-up\n"
      "and the defaults in turns. Only what ran is proposed. The files (about 2 GB for a drive of 2 GB/s) "
      "are in\n"
      "DIR/headrace-tune and are gone afterwards; what is written meanwhile counts for the drive's endurance "
      "(nearly\n"
      "SECONDS times its rate). --json has every sample.\n"
      "Ctrl-C and SIGTERM end it with the best so far and status 130.\n"
      "Exit status: 0 done, 1 nothing ran, 2 wrong usage, 3 does not fit, 130 stopped.\n\n"
      "Example: tune for a model of 7e9 parameters on a drive with 600 TBW, then train with what was found\n"
      "  headrace tune --swap-path /nvme --parameters 7e9 --endurance-tbw 600 --to swap.json\n"
      "  headrace train --config swap.json --model gpt2-124m --data FILE");
  command->callback([flags, &status] { status = run_tune(*flags); });
}

}  // namespace headrace::cli
