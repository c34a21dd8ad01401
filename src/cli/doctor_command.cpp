#include "headrace/doctor.h"

#include <fmt/format.h>

#include "headrace/communicator.h"
#include "headrace/errors.h"
#include "headrace/folders.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

struct DoctorFlags {
  std::vector<std::string> swap_paths;
  bool json = false;
};

int run_doctor(const DoctorFlags& flags) {
  for (const std::string& path : flags.swap_paths)
    if (path.empty()) throw UsageError("--swap-path: the value is empty. Give a folder.");
  require_different_folders("--swap-path", flags.swap_paths);
  if (launch_info().rank != 0) return 0;  // one report a job: that of the first rank's machine
  const DoctorReport report = examine_machine(flags.swap_paths);
  fmt::print("{}", flags.json ? to_json(report) + '\n' : to_text(report));
  return report.paths_usable ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("doctor", "show what this machine offers and what limits it");
  const auto flags = std::make_shared<DoctorFlags>();
  collect_values(command->add_option("--swap-path", flags->swap_paths,
                                     "a folder for states on NVMe, to be looked at too; may be repeated"))
      ->type_name("DIR");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->footer(
      "Each line is ok, a note, or a limit; behind -> stands what to do. Needs no privileges, and writes\n"
      "nothing but a file of a few pages in each swap path, which is gone at once.\n"
      "Started by mpirun, rank 0 alone reports, of its own machine.\n"
      "Exit status: 0 done, with limits or without; 1 a swap path cannot be used; 2 wrong usage.\n\n"
      "Example: can this machine train from its two drives?\n"
      "  headrace doctor --swap-path /mnt/nvme0 --swap-path /mnt/nvme1");
  command->callback([flags, &status] { status = run_doctor(*flags); });
}

}  // namespace headrace::cli
