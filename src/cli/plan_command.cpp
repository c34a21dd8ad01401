#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "headrace/errors.h"
#include "headrace/kernels.h"
#include "headrace/train.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int does_not_fit_status = 3;

Json tag_bytes(const TagBytes& bytes) {
  Json tags = Json::object();
  for (std::size_t t = 0; t < memory_tag_count; ++t)
    if (bytes.bytes[t] > 0) tags[std::string(name_of(static_cast<MemoryTag>(t)))] = bytes.bytes[t];
  return tags;
}

struct PlanReport {
  RunPlan run;
  TrafficCounters traffic;  // of one step, all ranks
  IoCounters io;
  std::optional<int> smallest_stage;
  std::string change;
  SwapSpace disk;
  CheckpointSpace checkpoints;
  bool fits() const { return run.memory.fits() && disk.shortage.empty() && checkpoints.shortage.empty(); }
};

PlanReport make_report(const ResolvedOptions& options) {
  PlanReport report;
  report.run = plan_run(options);
  report.traffic = plan_traffic(report.run.request, false);
  report.io = plan_io(report.run.request);
  report.smallest_stage = smallest_stage_that_fits(report.run.request);
  report.change = smallest_change_that_fits(report.run.request);
  if (!options.resume_swap) report.disk = swap_space(options, report.run);
  report.checkpoints = checkpoint_space(options, report.run);
  return report;
}

double bytes_a_parameter(const StateFormat& states) {
  return static_cast<double>(state_bytes(states, norm_chunk_numel)) / norm_chunk_numel;
}

Json to_json(const PlanReport& report) {
  const MemoryPlan& memory = report.run.memory;
  const StateFormat states = report.run.request.engine.state_format();
  return {{"fits", report.fits()},
          {"stage", memory.stage},
          {"world_size", memory.world_size},
          {"parameters", report.run.parameters},
          {"optimizer", name_of(states.kind)},
          {"master_dtype", name_of(states.master)},
          {"moment_dtype", name_of(states.moments)},
          {"state_bytes_a_parameter", bytes_a_parameter(states)},
          {"tiers",
           {{"device", tag_bytes(memory.device)},
            {"host", tag_bytes(memory.host)},
            {"nvme", tag_bytes(memory.nvme)}}},
          {"total",
           {{"device", memory.device.total()}, {"host", memory.host.total()}, {"nvme", memory.nvme.total()}}},
          {"nvme_path_bytes", memory.nvme_path_bytes},
          {"disk_shortage", report.disk.shortage},
          {"checkpoint_bytes", report.checkpoints.bytes},
          {"checkpoint_shortage", report.checkpoints.shortage},
          {"limit", {{"device", memory.device_limit}, {"host", memory.host_limit}}},
          {"smallest_stage_that_fits", report.smallest_stage ? Json(*report.smallest_stage) : Json()},
          {"smallest_change_that_fits", report.change},
          {"step_bytes",
           {{"all_gather", report.traffic.all_gather_bytes},
            {"reduce_scatter", report.traffic.reduce_scatter_bytes},
            {"all_reduce", report.traffic.all_reduce_bytes},
            {"nvme_read", report.io.read_bytes},
            {"nvme_written", report.io.written_bytes}}}};
}

// How fast a run uses up a drive (FIELD-CASES A23).
std::string wear_line(Bytes written_per_step) {
  constexpr double terabyte = 1e12, seconds_per_day = 86400;
  const auto written = static_cast<double>(written_per_step);
  return fmt::format(
      "SSD wear: {} written a step; 1 TB every {:.0f} steps; at one step a second {:.3g} TB a day\n",
      format_bytes(written_per_step), terabyte / written, written * seconds_per_day / terabyte);
}

// What each swap path must have free, of all ranks.
std::string disk_lines(const MemoryPlan& memory, const ResolvedOptions& options) {
  std::string text;
  const std::string pins = options.engine.swap_pins == 0
                               ? ""
                               : fmt::format(", with room for {} pinned versions (--keep-last and one more)",
                                             options.engine.swap_pins);
  for (std::size_t p = 0; p < memory.nvme_path_bytes.size(); ++p)
    text += fmt::format("disk, all ranks: {} reserved in {}{}\n",
                        format_bytes(memory.nvme_path_bytes[p] * static_cast<Bytes>(memory.world_size)),
                        p < options.swap_paths.size() ? options.swap_paths[p] : "--swap-path DIR", pins);
  return text;
}

// Whether it fits; the last word.
std::string verdict(const PlanReport& report) {
  const MemoryPlan& memory = report.run.memory;
  std::string text;
  if (!memory.fits()) {
    text += fmt::format("does not fit. {}\n", report.change);
    if (report.smallest_stage)
      text += fmt::format("the smallest stage that fits is {}\n", *report.smallest_stage);
  }
  for (const std::string& shortage : {report.disk.shortage, report.checkpoints.shortage})
    if (!shortage.empty()) text += fmt::format("does not fit: {}\n", shortage);
  if (!text.empty()) return text;
  if (memory.device_limit == 0 && memory.host_limit == 0)
    return "no limit given: --device-memory and --host-memory say whether it fits\n";
  return fmt::format("fits; the smallest stage that fits is {}\n",
                     report.smallest_stage.value_or(memory.stage));
}

std::string to_text(const PlanReport& report, const ResolvedOptions& options) {
  const MemoryPlan& memory = report.run.memory;
  std::string text = fmt::format("{}: {} parameters, {}, stage {}, {} rank{}, micro-batch {} x {} tokens\n\n",
                                 options.model.name, report.run.parameters, name_of(options.engine.dtype),
                                 memory.stage, memory.world_size, memory.world_size == 1 ? "" : "s",
                                 options.batch.micro, options.model_options.sequence);
  const StateFormat states = options.engine.state_format();
  text += fmt::format("optimizer: {}; {} bytes a parameter\n", optimizer_line(options.engine),
                      bytes_a_parameter(states));
  for (const std::string& line : group_lines(report.run.request.units, options)) text += line + '\n';
  text += ledger_table(memory) + '\n';
  if (memory.world_size > 1)
    text += fmt::format("on the wire a step, all ranks: {} all-gather, {} reduce-scatter\n",
                        format_bytes(report.traffic.all_gather_bytes),
                        format_bytes(report.traffic.reduce_scatter_bytes));
  text += disk_lines(memory, options);
  if (report.checkpoints.bytes > 0)
    text += fmt::format(
        "a checkpoint, all ranks: {} in {}{}\n", format_bytes(report.checkpoints.bytes),
        options.checkpoint.directory,
        report.checkpoints.available
            ? fmt::format(", where {} is free for them", format_bytes(*report.checkpoints.available))
            : "");
  if (report.io.written_bytes > 0) {
    text += fmt::format("NVMe a step, all ranks: {} read, {} written\n", format_bytes(report.io.read_bytes),
                        format_bytes(report.io.written_bytes));
    text += wear_line(report.io.written_bytes);
  }
  return text + verdict(report);
}

struct PlanFlags {
  std::unique_ptr<RunFlags> run;
  std::vector<std::string> world_size;
  bool json = false;
};

LaunchInfo planned_launch(const std::vector<std::string>& given) {
  constexpr int largest = 1 << 16;
  const std::string& text = only_value("--world-size", given);
  int size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc{} || end != text.data() + text.size() || size < 1 || size > largest)
    throw UsageError(fmt::format("--world-size: \"{}\" is not a whole number from 1 to {}.", text, largest));
  return {.rank = 0, .size = size, .local_rank = 0, .local_size = size, .launcher = "--world-size"};
}

int run_plan(const PlanFlags& flags) {
  const LaunchInfo launch = flags.world_size.empty() ? launch_info() : planned_launch(flags.world_size);
  const ResolvedOptions options = flags.run->resolve(launch);
  if (flags.run->print_config()) {
    fmt::print("{}\n", options.effective_config);
    return 0;
  }
  for (const std::string& note : options.notes) fmt::print(stderr, "{}\n", note);
  const PlanReport report = make_report(options);
  fmt::print("{}", flags.json ? to_json(report).dump(2) + '\n' : to_text(report, options));
  if (!report.checkpoints.warning.empty()) fmt::print(stderr, "warning: {}\n", report.checkpoints.warning);
  for (const std::string& path : report.disk.unknown)
    fmt::print(stderr, "note: {} {} does not exist here; whether the run fits on its drive was not checked\n",
               options.swap_path_name, path);
  return report.fits() ? 0 : does_not_fit_status;
}

}  // namespace

void add_plan(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("plan", "show the memory and the traffic of a run without running it");
  const auto flags = std::make_shared<PlanFlags>();
  flags->run = std::make_unique<RunFlags>(*command, RunFlags::Command::plan);
  collect_values(command->add_option("--world-size", flags->world_size, "ranks to plan for (default 1)"))
      ->type_name("N")
      ->group("Plan");
  command->add_flag("--json", flags->json, "print one JSON object")->group("Plan");
  command->footer(
      "Takes every flag of `train`, so a command line can be tried with `plan` first. Limits are per rank.\n"
      "Exit status: 0 it fits, 2 wrong usage, 3 does not fit.\n\n"
      "Example: which stage does gpt2-124m need on 4 ranks of 512 MiB?\n"
      "  headrace plan --model gpt2-124m --world-size 4 --device-memory 512MiB --batch-size 1");
  command->callback([flags, &status] { status = run_plan(*flags); });
}

}  // namespace headrace::cli
