#include <fmt/format.h>

#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/io_engine.h"
#include "headrace/pinned_checkpoints.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

struct CopyFlags {
  std::string checkpoint, to;
};

struct ReleaseFlags {
  std::vector<std::string> swap_paths;
  std::string pin;
};

int copy(const CopyFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  const auto io = make_io_engine({});
  const CopiedCheckpoint copied = copy_checkpoint(flags.checkpoint, flags.to, *io);
  fmt::print("wrote {}: {} files, {} in {:.1f} s\n", flags.to, copied.files, format_bytes(copied.bytes),
             seconds_since(start));
  return 0;
}

int release(const ReleaseFlags& flags) {
  const auto io = make_io_engine({});
  const ReleasedPin released = release_pin(flags.swap_paths, flags.pin, *io);
  fmt::print("released {} in {} swap store{}\n", flags.pin, released.stores, released.stores == 1 ? "" : "s");
  return 0;
}

void add_copy(CLI::App& command, int& status) {
  CLI::App* copying = command.add_subcommand("copy", "write a checkpoint's states into files of its own");
  const auto flags = std::make_shared<CopyFlags>();
  copying->add_option("CHECKPOINT", flags->checkpoint, "a folder like runs/a/step-00001200")->required();
  copying->add_option("--to", flags->to, "the folder to make: it does not exist yet, or is empty")
      ->required()
      ->type_name("DIR");
  copying->footer(
      "With --checkpoint-mode pin a checkpoint is a version that the swap stores keep: it can be read on "
      "this\n"
      "machine alone, until the run removes it. The copy has the same states in files, and is complete or "
      "not\n"
      "there. One that is of files already is copied too, without its parity.\n"
      "Exit status: 0 done, 1 something is missing or damaged, 2 wrong usage, 3 it does not fit.\n\n"
      "Example:\n"
      "  headrace checkpoint copy runs/a/step-00001200 --to kept/step-00001200");
  copying->callback([flags, &status] { status = copy(*flags); });
}

void add_release(CLI::App& command, int& status) {
  CLI::App* releasing =
      command.add_subcommand("release", "give back the space of a pinned version in swap stores");
  const auto flags = std::make_shared<ReleaseFlags>();
  releasing->add_option("PIN", flags->pin, "its name, as `headrace inspect SWAP-PATH` shows it")->required();
  releasing->add_option("PATH", flags->swap_paths, "all swap paths of the run")->required()->type_name("DIR");
  releasing->footer(
      "A run releases the versions of the checkpoints that it removes, and those that a kill left in its\n"
      "--checkpoint-dir. This is for those of another folder, which may be gone. A checkpoint whose version "
      "is\n"
      "released cannot be loaded any more. No job may be using the swap paths.\n"
      "Exit status: 0 done, 1 a store is damaged, 2 wrong usage.\n\n"
      "Example:\n"
      "  headrace inspect /nvme/swap\n"
      "  headrace checkpoint release step-00001200.8c3f01aa.5a0c11fe /nvme/swap");
  releasing->callback([flags, &status] { status = release(*flags); });
}

}  // namespace

void add_checkpoint(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("checkpoint", "make a pinned checkpoint portable, or release one");
  command->require_subcommand(1);
  add_copy(*command, status);
  add_release(*command, status);
}

}  // namespace headrace::cli
