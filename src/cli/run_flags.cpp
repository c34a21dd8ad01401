// Flags made from the table of settings, so that a flag and its key in a file cannot differ.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

std::string flag_of(const std::string& setting) {
  std::string flag = "--" + setting;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

}  // namespace

RunFlags::RunFlags(CLI::App& command, Command which) {
  for (const SettingInfo& info : setting_infos()) {
    const auto store = [this, name = info.name](const std::string& value) {
      given_.push_back({name, value});
    };
    CLI::Option* option =
        info.argument.empty()
            ? command.add_flag_function(
                  flag_of(info.name), [store](std::int64_t) { store("true"); }, info.meaning)
            : command.add_option_function<std::string>(flag_of(info.name), store, info.meaning)
                  ->type_name(info.argument)
                  ->take_last();
    // `plan` takes the command line of `train` as it is, but shows only what changes a plan.
    option->group(which == Command::plan && info.training_only ? "" : info.group);
  }
  command
      .add_option("--config", config_path_,
                  "configuration with DeepSpeed's keys and a \"headrace\" section; flags override it")
      ->type_name("FILE.json")
      ->group("Configuration");
  command.add_flag("--print-config", print_config_, "print the effective configuration as JSON and end")
      ->group("Configuration");
}

ResolvedOptions RunFlags::resolve(const LaunchInfo& launch) const {
  ConfigDraft draft;
  if (!config_path_.empty()) draft.read_file(config_path_);
  for (const Given& given : given_) draft.set_flag(given.setting, given.value);
  return draft.resolve(launch);
}

}  // namespace headrace::cli
