// headrace: the program. Each subcommand has a file of its own.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "headrace/errors.h"
#include "headrace/train.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

// The names that the command in use knows, to suggest one for a mistyped flag.
std::vector<std::string> known_flags(const CLI::App& program) {
  std::vector<std::string> names;
  const auto add = [&](const CLI::App& app) {
    for (const CLI::Option* option : app.get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  };
  add(program);
  for (const CLI::App* command : program.get_subcommands()) add(*command);
  return names;
}

std::vector<std::string> command_names(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// What is typed before a command, or behind a second one.
std::string misplaced(const CLI::App& program, const std::string& argument) {
  const auto commands = command_names(program);
  const bool has_command = !program.get_subcommands().empty();
  if (has_command && std::find(commands.begin(), commands.end(), argument) != commands.end())
    return fmt::format("{} cannot follow {}: give one command at a time.", argument,
                       program.get_subcommands().front()->get_name());
  if (!argument.starts_with("--")) return "";
  const auto all = [](const CLI::App*) { return true; };
  for (const CLI::App* command : program.get_subcommands(all))
    if ((!has_command || command->parsed()) && command->get_option_no_throw(argument) != nullptr)
      return fmt::format("{0} comes behind its command: headrace {1} {0} ...", argument, command->get_name());
  return "";
}

UsageError unknown_argument(const CLI::App& program, std::string argument) {
  argument = argument.substr(0, argument.find('='));
  if (const std::string text = misplaced(program, argument); !text.empty()) return UsageError(text);
  const bool is_flag = argument.starts_with('-');
  const bool has_command = !program.get_subcommands().empty();
  const std::string nearest = is_flag       ? nearest_name(argument, known_flags(program))
                              : has_command ? ""
                                            : nearest_name(argument, command_names(program));
  const std::string command = has_command ? program.get_subcommands().front()->get_name() + " " : "";
  return UsageError(fmt::format("{} {} is not known.{} `headrace {}--help` lists what is.",
                                is_flag       ? "the flag"
                                : has_command ? "the argument"
                                              : "the command",
                                argument.empty() ? "\"\"" : argument,
                                nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest), command));
}

// Parses and runs; CLI11's errors become ours.
void parse(CLI::App& program, int argc, char** argv, int& status) {
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    program.exit(help);
  } catch (const CLI::CallForVersion& version) {
    program.exit(version);
  } catch (const CLI::ExtrasError&) {
    throw unknown_argument(program, program.remaining(true).front());
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    throw UsageError(fmt::format("{} needs a value.", text.substr(0, text.find(':'))));
  } catch (const CLI::RequiredError& error) {
    throw UsageError(fmt::format("{}. `headrace {} --help` shows how.", error.what(),
                                 program.get_subcommands().front()->get_name()));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (program.get_subcommands().empty() && argc == 1) {
    fmt::print("{}", program.help());
    status = 2;
  }
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
  return headrace::cli::run(argc, argv);
}
