// headrace: the program. Each subcommand has a file of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "headrace/errors.h"
#include "headrace/train.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

// The program, the command in use, and the command of that command, as far as they are typed.
std::vector<const CLI::App*> commands_in_use(const CLI::App& program) {
  std::vector<const CLI::App*> chain = {&program};
  while (!chain.back()->get_subcommands().empty()) chain.push_back(chain.back()->get_subcommands().front());
  return chain;
}

// "bench link", or "" for the program itself.
std::string path_of(const CLI::App& command) {
  if (command.get_parent() == nullptr) return "";
  const std::string above = path_of(*command.get_parent());
  return (above.empty() ? "" : above + " ") + command.get_name();
}

std::vector<const CLI::App*> commands_of(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App*) { return true; });
}

// To suggest one for a mistyped flag.
std::vector<std::string> known_flags(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands)
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* below : commands_of(command)) names.push_back(below->get_name());
  return names;
}

// A command below `command` that knows the flag, or null.
const CLI::App* owner_of(const std::string& flag, const CLI::App& command) {
  for (const CLI::App* below : commands_of(command)) {
    if (below->get_option_no_throw(flag) != nullptr) return below;
    if (const CLI::App* deeper = owner_of(flag, *below)) return deeper;
  }
  return nullptr;
}

// What is typed before its command, or behind another one.
std::string misplaced(const std::vector<const CLI::App*>& in_use, const std::string& argument) {
  for (std::size_t c = 0; c + 1 < in_use.size(); ++c) {
    const auto names = command_names(*in_use[c]);
    if (std::find(names.begin(), names.end(), argument) != names.end())
      return fmt::format("{} cannot follow {}: give one command at a time.", argument,
                         path_of(*in_use[c + 1]));
  }
  if (!argument.starts_with("--")) return "";
  for (const CLI::App* command : in_use)
    if (command != in_use.front() && command->get_option_no_throw(argument) != nullptr)
      return fmt::format("{0} comes behind its command: headrace {1} {0} ...", argument, path_of(*command));
  const CLI::App* owner = owner_of(argument, *in_use.back());
  if (owner == nullptr) return "";
  return fmt::format("{0} comes behind its command: headrace {1} {0} ...", argument, path_of(*owner));
}

UsageError unknown_argument(const CLI::App& program, std::string argument) {
  argument = argument.substr(0, argument.find('='));
  const std::vector<const CLI::App*> in_use = commands_in_use(program);
  if (const std::string text = misplaced(in_use, argument); !text.empty()) return UsageError(text);
  const bool is_flag = argument.starts_with('-');
  const std::vector<std::string> names = command_names(*in_use.back());
  const std::string nearest = nearest_name(argument, is_flag ? known_flags(in_use) : names);
  const std::string path = path_of(*in_use.back());
  return UsageError(fmt::format("{} {} is not known.{} `headrace {}--help` lists what is.",
                                is_flag         ? "the flag"
                                : names.empty() ? "the argument"
                                                : "the command",
                                argument.empty() ? "\"\"" : argument,
                                nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest),
                                path.empty() ? "" : path + " "));
}

// Parses and runs; CLI11's errors become ours.
void parse(CLI::App& program, int argc, char** argv, int& status) {
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    program.exit(help);
    return;
  } catch (const CLI::CallForVersion& version) {
    program.exit(version);
    return;
  } catch (const CLI::ExtrasError&) {
    throw unknown_argument(program, program.remaining(true).front());
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    throw UsageError(fmt::format("{} needs a value.", text.substr(0, text.find(':'))));
  } catch (const CLI::RequiredError& error) {
    throw UsageError(fmt::format("{}. `headrace {} --help` shows how.", error.what(),
                                 path_of(*commands_in_use(program).back())));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (commands_of(*commands_in_use(program).back()).empty()) return;
  fmt::print("{}", program.help());  // a command is missing
  status = 2;
}

// The environment of a launcher may itself be what is wrong.
LaunchInfo launch_or_default() {
  try {
    return launch_info();
  } catch (const std::exception&) {
    return {};
  }
}

int run(int argc, char** argv) {
  CLI::App program(
      "Headrace trains models larger than device and host memory: ZeRO stages 0-3, states on NVMe.",
      "headrace");
  program.set_version_flag("--version", "headrace " HEADRACE_VERSION);
  program.require_subcommand(0, 1);
  program.get_formatter()->column_width(38);
  program.footer("`headrace COMMAND --help` shows the flags of a command.");
  int status = 0;
  add_train(program, status);
  add_plan(program, status);
  add_inspect(program, status);
  add_export(program, status);
  add_checkpoint(program, status);
  add_generate(program, status);
  add_doctor(program, status);
  add_bench(program, status);
  add_tune(program, status);
  try {
    parse(program, argc, argv, status);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw Error(
          fmt::format("the results could not be written to standard output: {}.", std::strerror(errno)));
  } catch (const std::exception& error) {
    return report_error(error, launch_or_default());
  }
  return status;
}

}  // namespace
}  // namespace headrace::cli

int main(int argc, char** argv) {
  // At the limit of file sizes a write then fails like on a full disk, and says so.
  std::signal(SIGXFSZ, SIG_IGN);
  return headrace::cli::run(argc, argv);
}
