#include "headrace/inspect.h"

#include <fmt/format.h>

#include <filesystem>

#include "headrace/errors.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

struct InspectFlags {
  std::vector<std::string> paths;
  bool json = false;
  InspectOptions options;
};

void require_there(const std::string& path) {
  if (path.empty()) throw UsageError("PATH: the value is empty. Give the --swap-path of a run.");
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    throw UsageError(fmt::format("{} does not exist. Give the --swap-path of a run.", path));
  if (error)
    throw UsageError(fmt::format("{} cannot be looked at: {}. Inspect it as the user who runs the job.", path,
                                 error.message()));
}

int run_inspect(const InspectFlags& flags) {
  for (const std::string& path : flags.paths) require_there(path);
  const auto io = make_io_engine({});
  const InspectReport report = inspect_swap_paths(flags.paths, flags.options, *io);
  std::string text = flags.json ? to_json(report) : to_text(report);
  if (!text.ends_with('\n')) text += '\n';
  fmt::print("{}", text);
  return report.good() ? 0 : 1;
}

}  // namespace

void add_inspect(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("inspect", "show what a swap path holds");
  const auto flags = std::make_shared<InspectFlags>();
  command
      ->add_option("PATH", flags->paths,
                   "a swap path, or one rank's folder in it; all of a run's paths where they have been moved")
      ->required()
      ->type_name("");
  command->add_flag("--verify", flags->options.verify, "read every committed byte and check it");
  command->add_flag("--hash", flags->options.hash, "compute the state hash, as `train` prints it");
  command->add_flag("--blocks", flags->options.blocks,
                    "list each block: where it lies, generation, checksum");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->footer(
      "Opens everything read-only; a running job is not disturbed.\n"
      "Exit status: 0 all is well, 1 something is damaged or missing, 2 wrong usage.\n\n"
      "Example: is what the last run left good, and is it the same state?\n"
      "  headrace inspect /tmp/swap --verify --hash");
  command->callback([flags, &status] { status = run_inspect(*flags); });
}

}  // namespace headrace::cli
