// A draft of a run's options, from files and flags.
#include <algorithm>

#include "headrace/errors.h"
#include "src/train/config_text.h"
#include "src/train/resolve_parts.h"

namespace headrace {
namespace {

std::string flag_of(std::string_view setting) {
  std::string flag = fmt::format("--{}", setting);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

void set_from_flag(Settings& settings, const std::string& name, Json value) {
  const NativeSetting* setting = find_native(name);
  HEADRACE_CHECK(setting != nullptr, "{} is not a setting", name);
  const std::string flag = flag_of(name);
  setting->set(settings, ConfigValue(flag, std::move(value)));
  settings.given[name] = flag;
}

}  // namespace

std::string user_name(const Settings& settings, std::string_view name) {
  const auto given = settings.given.find(name);
  if (given == settings.given.end()) return flag_of(name);
  return is_flag(given->second) ? given->second : fmt::format("\"{}\"", given->second);
}

struct ConfigDraft::Impl {
  Settings settings;
  UnusedKeys unused;
};

ConfigDraft::ConfigDraft() : impl_(std::make_unique<Impl>()) {}
ConfigDraft::~ConfigDraft() = default;

void ConfigDraft::read_file(const std::string& path) {
  read_text(read_config_text(path), path);
}

void ConfigDraft::read_text(std::string_view json, const std::string& origin) {
  const UnusedKeys unused = apply_config(parse_config_text(json, origin), origin, impl_->settings);
  const auto append = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(impl_->unused.hints, unused.hints);
  append(impl_->unused.defaults, unused.defaults);
  append(impl_->unused.switched_off, unused.switched_off);
}

void ConfigDraft::set_flag(const std::string& name, const std::string& value) {
  set_from_flag(impl_->settings, name, value);
}

void ConfigDraft::set_flag(const std::string& name, const std::vector<std::string>& values) {
  set_from_flag(impl_->settings, name, values);
}

ResolvedOptions ConfigDraft::resolve_for(const std::vector<UnitSpec>& units, const LaunchInfo& launch) const {
  ResolvedOptions options = resolve_settings(impl_->settings, launch, &units);
  options.notes = notes(impl_->settings, impl_->unused, options.schedule);
  return options;
}

ResolvedOptions ConfigDraft::resolve(const LaunchInfo& launch) const {
  ResolvedOptions options = resolve_settings(impl_->settings, launch);
  options.notes = notes(impl_->settings, impl_->unused, options.schedule);
  return options;
}

}  // namespace headrace
