#include "headrace/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "headrace/errors.h"
#include "src/cli/commands.h"
#include "src/cli/inspect_progress.h"
#include "src/cli/interrupt.h"
#include "src/cli/json_text.h"

namespace headrace::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectFlags {
  std::vector<std::string> paths;
  bool json = false, repair = false, journal = false;
  InspectOptions options;
};

void check_paths(const InspectFlags& flags) {
  bool any = false;
  for (const std::string& path : flags.paths) {
    if (path.empty()) throw UsageError("PATH: the value is empty. Give the --swap-path of a run.");
    std::error_code error;
    any = any || std::filesystem::exists(path, error);
    if (error)
      throw UsageError(fmt::format("{} cannot be looked at: {}. Inspect it as the user who runs the job.",
                                   path, error.message()));
  }
  if (!any)  // one that is missing among others may be what is repaired
    throw UsageError(
        fmt::format("{} does not exist. Give the --swap-path of a run.", fmt::join(flags.paths, ", ")));
}

std::string repair_text(const SwapRepair& repair) {
  std::string text;
  for (const SwapRepairedPath& path : repair.paths)
    text += fmt::format("{}: {} pieces checked, {} rebuilt ({}){}\n", path.directory, path.pieces_checked,
                        path.pieces_rebuilt, format_bytes(path.bytes_rebuilt),
                        path.rejoined ? ", part of the store again" : "");
  for (const std::string& problem : repair.problems) text += fmt::format("problem: {}\n", problem);
  return text;
}

Json repair_json(const SwapRepair& repair) {
  Json object = {{"paths", Json::array()}, {"problems", repair.problems}};
  for (const SwapRepairedPath& path : repair.paths)
    object["paths"].push_back({{"directory", path.directory},
                               {"pieces_checked", path.pieces_checked},
                               {"pieces_rebuilt", path.pieces_rebuilt},
                               {"bytes_rebuilt", path.bytes_rebuilt},
                               {"rejoined", path.rejoined}});
  return object;
}

// Every piece of every step that is kept. 0 where that cannot be told; the repair says why.
Bytes bytes_to_read(const std::vector<std::vector<std::string>>& stores) {
  Bytes total = 0;
  try {
    for (const std::vector<std::string>& folders : stores) {
      const SwapDescription store = SwapStore::describe(folders);
      Bytes blocks = 0;
      for (const SwapBlock& block : store.blocks) blocks += block.bytes;
      total += blocks * store.commits.size() * store.paths.size() / (store.paths.size() - store.parity);
    }
  } catch (const Error&) {
    return 0;
  }
  return total;
}

int run_repair(const InspectFlags& flags, IoEngine& io) {
  const auto folders_of_stores = swap_stores_in(flags.paths);
  RepairEngine engine(io, bytes_to_read(folders_of_stores));
  bool good = true, stopped = false;
  Json stores = Json::array();
  try {
    for (const std::vector<std::string>& folders : folders_of_stores) {
      const SwapRepair repair = SwapStore::repair(folders, engine);
      good = good && repair.problems.empty();
      engine.end_line();
      if (!flags.json) fmt::print("{}", repair_text(repair));
      stores.push_back(repair_json(repair));
    }
  } catch (const RepairStopped&) {
    stopped = true;
  }
  engine.end_line();
  const Json report = {{"repaired", std::move(stores)}, {"stopped", stopped}};
  if (flags.json) fmt::print("{}", json_text(report));
  if (!stopped) return good ? 0 : 1;
  fmt::print(stderr, "headrace: stopped after {}. Nothing is lost: the repair can be started again.\n",
             engine.so_far());
  return Interrupt::exit_status;
}

int run_inspect(const InspectFlags& flags) {
  check_paths(flags);
  const auto io = make_io_engine({});
  if (flags.repair) return run_repair(flags, *io);
  const Interrupt interrupt;
  InspectProgress progress;
  const InspectControl control{
      .stop_requested = [&] { return interrupt.requested(); },
      .progress = [&](Bytes checked, Bytes total) { progress.checked(checked, total); }};
  const InspectReport report = inspect_swap_path(flags.paths, flags.options, *io, control);
  progress.erase();
  std::string text = flags.json ? to_json(report) : to_text(report, flags.journal);
  if (!text.ends_with('\n')) text += '\n';
  fmt::print("{}", text);
  if (report.stopped) {
    fmt::print(stderr, "headrace: stopped after {} were checked\n", progress.so_far());
    return Interrupt::exit_status;
  }
  return report.good() ? 0 : 1;
}

}  // namespace

void add_inspect(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("inspect", "show what swap paths hold, and repair them");
  const auto flags = std::make_shared<InspectFlags>();
  command
      ->add_option("PATH", flags->paths,
                   "the swap paths of a run, or one rank's folders in them (one finds the others)")
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
      "Without --repair it opens everything read-only; a running job is not disturbed.\n"
      "--repair takes all swap paths, and a new empty folder in the place of one that is gone.\n"
      "Exit status: 0 all is well, 1 something is damaged, 2 wrong usage, 130 stopped (Ctrl-C).\n\n"
      "Words: a unit is what a run gathers at once, most often a layer. A block is a stretch of the\n"
      "optimizer states, and is read and written whole. With parity it is cut into pieces, one a path, of\n"
      "which some may be lost. Extents are the places of blocks or pieces in extents.bin, which has room "
      "for\n"
      "two steps. The journal says which extents make up a step: a commit record a step, and a release "
      "where\n"
      "every rank knew of it; torn is what a crash left unfinished at its end, sequence the number of a\n"
      "record. A generation counts how often a block was written. JSON always has all of this.\n\n"
      "Example: is what the last run left good, and is it the same state?\n"
      "  headrace inspect /tmp/swap --verify --hash\n"
      "Example: a drive was replaced.\n"
      "  headrace inspect /nvme0/swap /nvme1/swap /nvme2/swap --repair");
  command->callback([flags, &status] { status = run_inspect(*flags); });
}

}  // namespace headrace::cli
