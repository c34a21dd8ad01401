#include "headrace/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/folders.h"
#include "src/cli/commands.h"
#include "src/cli/inspect_progress.h"
#include "src/cli/interrupt.h"

namespace headrace::cli {
namespace {

struct InspectFlags {
  std::vector<std::string> paths;
  bool json = false, repair = false, journal = false;
  InspectOptions options;
};

constexpr std::string_view what_to_give = "Give a checkpoint, a folder of some, or the --swap-path of a run.";

void check_paths(const InspectFlags& flags) {
  bool any = false;
  for (const std::string& path : flags.paths) {
    if (path.empty()) throw UsageError(fmt::format("PATH: the value is empty. {}", what_to_give));
    std::error_code error;
    any = any || std::filesystem::exists(path, error);
    if (error)
      throw UsageError(fmt::format("{} cannot be looked at: {}. Inspect it as the user who runs the job.",
                                   path, error.message()));
  }
  if (!any)  // one that is missing among others may be what is repaired
    throw UsageError(fmt::format("{} does not exist. {}", fmt::join(flags.paths, ", "), what_to_give));
  require_different_folders("PATH", flags.paths);
}

// Every piece of every step that is kept. 0 where that cannot be told; the repair says why.
Bytes bytes_to_read(const std::vector<std::vector<std::string>>& stores) {
  Bytes total = 0;
  try {
    for (const std::vector<std::string>& folders : stores) {
      const SwapDescription store = SwapStore::describe(folders);
      Bytes blocks = 0;
      for (const SwapBlock& block : store.blocks) blocks += block.bytes;
      const std::size_t versions = store.commits.size() + store.pins.size();
      total += blocks * versions * store.paths.size() / (store.paths.size() - store.parity);
    }
  } catch (const Error&) {
    return 0;
  }
  return total;
}

// A path that nobody named may be on a drive that is only not mounted: nothing is rebuilt in its place.
void refuse_missing_paths_not_given(const std::vector<std::string>& folders, std::size_t given) {
  if (folders.size() <= given) return;
  std::vector<SwapPath> missing;
  for (SwapPath& path : SwapStore::describe(folders).paths)
    if (path.state == SwapPath::State::missing) missing.push_back(std::move(path));
  if (missing.empty()) return;
  throw WrongSwapPaths(fmt::format("{} is of the store and not among the paths given, and {}: {}.",
                                   missing.front().directory, missing.front().problem,
                                   how_to_bring_back(missing, folders)));
}

// What was done, up to a stop, is in the report; as text it is printed store by store.
InspectReport repair(const InspectFlags& flags, IoEngine& io) {
  InspectReport report;
  report.path = fmt::format("{}", fmt::join(flags.paths, ", "));
  std::vector<SwapRepair>& repaired = report.repaired.emplace();
  const auto folders_of_stores = swap_stores_in(flags.paths);
  for (const auto& folders : folders_of_stores) refuse_missing_paths_not_given(folders, flags.paths.size());
  RepairEngine engine(io, bytes_to_read(folders_of_stores));
  try {
    for (const std::vector<std::string>& folders : folders_of_stores) {
      const SwapRepair& done = repaired.emplace_back(SwapStore::repair(folders, engine));
      report.problems.insert(report.problems.end(), done.problems.begin(), done.problems.end());
      engine.end_line();
      if (!flags.json) fmt::print("{}", to_text(done));
    }
  } catch (const RepairStopped&) {
    report.stopped = true;
    engine.end_line();
    fmt::print(stderr, "headrace: stopped after {}. Nothing is lost: the repair can be started again.\n",
               engine.so_far());
  }
  return report;
}

InspectReport look(const InspectFlags& flags, IoEngine& io) {
  const Interrupt interrupt;
  InspectProgress progress;
  const InspectControl control{
      .stop_requested = [&] { return interrupt.requested(); },
      .progress = [&](Bytes checked, Bytes total) { progress.checked(checked, total); }};
  InspectReport report = inspect_swap_path(flags.paths, flags.options, io, control);
  progress.erase();
  if (report.stopped) fmt::print(stderr, "headrace: stopped after {} were checked\n", progress.so_far());
  return report;
}

void print_json(const InspectReport& report) {
  fmt::print("{}\n", to_json(report));
}

int status_of(const InspectReport& report) {
  return report.stopped ? Interrupt::exit_status : report.good() ? 0 : 1;
}

// The stores are looked at afterwards for who asked for that, and always for JSON, which then has one form.
int run_repair(const InspectFlags& flags, IoEngine& io) {
  const InspectReport repaired = repair(flags, io);
  const InspectOptions& options = flags.options;
  const bool looks = flags.json || flags.journal || options.verify || options.hash || options.blocks;
  if (repaired.stopped || !looks) {
    if (flags.json) print_json(repaired);
    return status_of(repaired);
  }
  InspectReport report = look(flags, io);
  if (!flags.json) {
    fmt::print("{}", to_text(report, flags.journal));
    return repaired.good() ? status_of(report) : std::max(1, status_of(report));
  }
  report.repaired = repaired.repaired;
  report.problems.insert(report.problems.begin(), repaired.problems.begin(), repaired.problems.end());
  print_json(report);
  return status_of(report);
}

int print_checkpoint(const InspectFlags& flags, const CheckpointReport& report) {
  fmt::print("{}", flags.json ? to_json(report) + '\n' : to_text(report));
  return report.stopped ? Interrupt::exit_status : report.good() ? 0 : 1;
}

CheckpointReport look_at_checkpoint(const InspectFlags& flags, const std::string& path, IoEngine& io) {
  const Interrupt interrupt;
  InspectProgress progress;
  const InspectControl control{
      .stop_requested = [&] { return interrupt.requested(); },
      .progress = [&](Bytes checked, Bytes total) { progress.checked(checked, total); }};
  CheckpointReport report = inspect_checkpoint(path, flags.options, io, control);
  progress.erase();
  if (report.stopped) fmt::print(stderr, "headrace: stopped after {} were checked\n", progress.so_far());
  return report;
}

CheckpointRepair repair_one_checkpoint(const std::string& path, IoEngine& io) {
  const Interrupt interrupt;
  InspectProgress progress;
  const InspectControl control{.stop_requested = [&] { return interrupt.requested(); },
                               .progress = [&](Bytes done, Bytes total) { progress.repaired(done, total); }};
  CheckpointRepair repair = repair_checkpoint(path, io, control);
  progress.erase();
  if (repair.stopped)
    fmt::print(stderr, "headrace: stopped after {}. Nothing is lost: the repair can be started again.\n",
               progress.so_far());
  return repair;
}

// As with swap paths: looked at afterwards for who asked for that, and always for JSON.
int run_checkpoint_repair(const InspectFlags& flags, const std::string& path, IoEngine& io) {
  const CheckpointRepair repair = repair_one_checkpoint(path, io);
  if (!flags.json) fmt::print("{}", to_text(repair));
  const bool looks = flags.json || flags.options.verify || flags.options.hash;
  if (!looks || (repair.stopped && !flags.json))
    return repair.stopped ? Interrupt::exit_status : repair.problems.empty() ? 0 : 1;
  InspectFlags after = flags;
  if (repair.stopped) after.options = {};
  CheckpointReport report = look_at_checkpoint(after, path, io);
  report.stopped = report.stopped || repair.stopped;
  report.problems.insert(report.problems.begin(), repair.problems.begin(), repair.problems.end());
  report.repaired = repair;
  return print_checkpoint(flags, report);
}

int print_list(const InspectFlags& flags, const std::string& path,
               const std::vector<ListedCheckpoint>& listed) {
  fmt::print("{}", flags.json ? list_json(path, listed) + '\n' : list_text(path, listed));
  return all_whole(listed) ? 0 : 1;
}

// None where the paths are not of checkpoints.
std::optional<int> run_on_checkpoints(const InspectFlags& flags, IoEngine& io) {
  const std::string& path = flags.paths.front();
  const bool is_one = is_checkpoint(path);
  const std::vector<ListedCheckpoint> listed =
      is_one ? std::vector<ListedCheckpoint>{} : list_checkpoints(path);
  if (!is_one && listed.empty()) {
    if (is_named_as_checkpoint(path)) throw UsageError(not_a_checkpoint(path));
    return std::nullopt;
  }
  if (flags.paths.size() > 1) throw UsageError("of checkpoints, one is inspected at a time: give one PATH.");
  if (flags.journal || flags.options.blocks)
    throw UsageError(fmt::format("{} is a checkpoint: --journal and --blocks are of swap paths.", path));
  if (!is_one && !flags.repair && !flags.options.verify && !flags.options.hash)
    return print_list(flags, path, listed);
  const std::string one = checkpoint_at(path);
  if (flags.repair) return run_checkpoint_repair(flags, one, io);
  return print_checkpoint(flags, look_at_checkpoint(flags, one, io));
}

int run_inspect(const InspectFlags& flags) {
  check_paths(flags);
  const auto io = make_io_engine({});
  if (const std::optional<int> status = run_on_checkpoints(flags, *io)) return *status;
  if (flags.repair) return run_repair(flags, *io);
  const InspectReport report = look(flags, *io);
  if (flags.json)
    print_json(report);
  else
    fmt::print("{}", to_text(report, flags.journal));
  return status_of(report);
}

// Who reads JSON gets it of wrong usage and of a repair that cannot begin too.
int run(const InspectFlags& flags) {
  try {
    return run_inspect(flags);
  } catch (const Error& error) {
    if (flags.json) {
      InspectReport report;
      report.path = fmt::format("{}", fmt::join(flags.paths, ", "));
      report.problems.emplace_back(error.what());
      print_json(report);
    }
    throw;
  }
}

}  // namespace

void add_inspect(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("inspect", "show what swap paths or a checkpoint hold, and repair them");
  const auto flags = std::make_shared<InspectFlags>();
  command
      ->add_option("PATH", flags->paths,
                   "a run's swap paths, or one rank's folders in them; a checkpoint, or a folder of some")
      ->required()
      ->type_name("DIR");
  command->add_flag("--verify", flags->options.verify, "read every committed byte and check it");
  command->add_flag("--hash", flags->options.hash, "compute the state hash, as `train` prints it");
  command->add_flag("--blocks", flags->options.blocks,
                    "list each block: where it lies, generation, checksum; and each damaged piece");
  command->add_flag("--journal", flags->journal, "show the journals' records and the generations");
  command->add_flag("--repair", flags->repair,
                    "rebuild by parity what is missing or damaged, and check every committed byte");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->footer(
      "Without --repair it opens everything read-only; a running job is not disturbed. Some of a run's swap\n"
      "paths find the others. Of a folder of several checkpoints, --verify, --hash and --repair are of the\n"
      "newest. --repair takes all swap paths, and a new empty folder in the place of one that is gone; or a\n"
      "checkpoint, beside which no job may be saving, and writes anew what is damaged of it. --verify, "
      "--hash,\n"
      "--blocks and --journal are of what is there afterwards.\n"
      "Exit status: 0 all is well, 1 something is damaged, 2 wrong usage, 130 stopped (Ctrl-C).\n\n"
      "Words: a unit is what a run gathers at once, most often a layer. A block is a stretch of the\n"
      "optimizer states, and is read and written whole. With parity it is cut into pieces, one a path, of\n"
      "which some may be lost. Extents are the places of blocks or pieces in extents.bin, which has room\n"
      "for two steps, and for each version that can be pinned beside them (train --checkpoint-mode pin).\n"
      "The journal says which extents make up a step: a commit record a step, and a release where every\n"
      "rank knew of it; torn is what a crash left unfinished at its end, sequence the number of a\n"
      "record. A generation counts how often a block was written.\n\n"
      "JSON always has journals and generations; --verify adds each damaged piece (`damage`), --blocks the\n"
      "list of blocks, --repair what was rebuilt. `problems` has the error of wrong usage too.\n\n"
      "Example: is what the last run left good, and is it the same state?\n"
      "  headrace inspect /tmp/swap --verify --hash\n"
      "Example: a drive was replaced.\n"
      "  headrace inspect /nvme0/swap /nvme1/swap /nvme2/swap --repair\n"
      "Example: a file of a checkpoint with parity was lost.\n"
      "  headrace inspect runs/a/step-00001200 --repair --verify");
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace headrace::cli
