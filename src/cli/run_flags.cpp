// Flags made from the table of settings, so that a flag and its key in a file cannot differ.
#include <fmt/format.h>

#include <algorithm>

#include "headrace/errors.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

std::string flag_of(const std::string& setting) {
  std::string flag = "--" + setting;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

}  // namespace

CLI::Option* collect_values(CLI::Option* option) {
  return option->expected(1)->take_all()->allow_extra_args(false);
}

const std::vector<std::string>& all_values(const std::string& flag, const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    if (value.starts_with("--"))
      throw UsageError(fmt::format("{} needs a value, but {} follows it.", flag, value));
    if (value.empty()) throw UsageError(fmt::format("{}: the value is empty.", flag));
  }
  return values;
}

const std::string& only_value(const std::string& flag, const std::vector<std::string>& values) {
  for (const std::string& value : all_values(flag, values))
    if (value != values.front())
      throw UsageError(
          fmt::format("{} is given twice, as {} and as {}. Keep one of them.", flag, values.front(), value));
  return values.front();
}

RunFlags::RunFlags(CLI::App& command, Command which) {
  for (const SettingInfo& info : setting_infos()) {
    CLI::Option* option =
        info.argument.empty()
            ? command.add_flag(flag_of(info.name), switches_[info.name], info.meaning)
            : collect_values(command.add_option(flag_of(info.name), given_[info.name], info.meaning)
                                 ->type_name(info.argument));
    // `plan` takes the command line of `train` as it is, but shows only what changes a plan.
    option->group(which == Command::plan && info.training_only ? "" : info.group);
  }
  collect_values(
      command.add_option("--config", config_paths_,
                         "DeepSpeed's keys and defaults, and a \"headrace\" section; flags go before it"))
      ->type_name("FILE.json")
      ->group("Configuration");
  command.add_flag("--print-config", print_config_, "print the effective configuration as JSON and end")
      ->group("Configuration");
}

ResolvedOptions RunFlags::resolve(const LaunchInfo& launch) const {
  ConfigDraft draft;
  if (!config_paths_.empty()) draft.read_file(only_value("--config", config_paths_));
  for (const auto& [setting, value] : switches_)
    if (!value.empty()) draft.set_flag(setting, value);
  for (const SettingInfo& info : setting_infos()) {
    const auto given = given_.find(info.name);
    if (given == given_.end() || given->second.empty()) continue;
    const std::string flag = flag_of(info.name);
    if (info.repeated)
      draft.set_flag(info.name, all_values(flag, given->second));
    else
      draft.set_flag(info.name, only_value(flag, given->second));
  }
  return draft.resolve(launch);
}

}  // namespace headrace::cli
