#include "headrace/inspect.h"

#include <fmt/format.h>

#include <filesystem>

#include "headrace/errors.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

struct InspectFlags {
  std::string path;
  bool json = false;
  InspectOptions options;
};

int run_inspect(const InspectFlags& flags) {
  if (flags.path.empty()) throw UsageError("PATH: the value is empty. Give the --swap-path of a run.");
  std::error_code error;
  if (!std::filesystem::exists(flags.path, error))
    throw UsageError(fmt::format("{} does not exist. Give the --swap-path of a run.", flags.path));
  const auto io = make_io_engine({});
  const InspectReport report = inspect_swap_path(flags.path, flags.options, *io);
  std::string text = flags.json ? to_json(report) : to_text(report);
  if (!text.ends_with('\n')) text += '\n';
  fmt::print("{}", text);
  return report.good() ? 0 : 1;
}

}  // namespace

void add_inspect(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("inspect", "show what a swap path holds");
  const auto flags = std::make_shared<InspectFlags>();
  command->add_option("PATH", flags->path, "a swap path, or one rank's folder in it")
      ->required()
      ->type_name("");
  command->add_flag("--verify", flags->options.verify, "read every committed byte and check it");
  command->add_flag("--hash", flags->options.hash, "compute the state hash, as `train` prints it");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->footer(
      "Opens everything read-only; a running job is not disturbed.\n"
      "Exit status: 0 all is well, 1 something is damaged, 2 wrong usage.\n\n"
      "Example: is what the last run left good, and is it the same state?\n"
      "  headrace inspect /tmp/swap --verify --hash");
  command->callback([flags, &status] { status = run_inspect(*flags); });
}

}  // namespace headrace::cli
