// Walks a configuration file: every key is looked up in the tables, so none is ignored silently (FIELD-CASES
// G2, G3).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "headrace/errors.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

constexpr std::string_view native_section = "headrace";

const std::map<std::string, std::string, std::less<>>& section_aliases() {
  static const std::map<std::string, std::string, std::less<>> aliases = {{"bfloat16", "bf16"}};
  return aliases;
}

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

bool is_section(const std::string& path) {
  return std::any_of(deepspeed_table().begin(), deepspeed_table().end(),
                     [&](const DeepSpeedKey& key) { return key.path.starts_with(path + '.'); });
}

const DeepSpeedKey* find_key(const std::string& path) {
  for (const DeepSpeedKey& key : deepspeed_table())
    if (key.path == path) return &key;
  return nullptr;
}

// Every path a user may write, sections included.
std::vector<std::string> known_paths() {
  std::vector<std::string> paths;
  for (const DeepSpeedKey& key : deepspeed_table()) {
    for (std::size_t dot = key.path.find('.'); dot != std::string::npos; dot = key.path.find('.', dot + 1))
      if (const std::string section = key.path.substr(0, dot);
          std::find(paths.begin(), paths.end(), section) == paths.end())
        paths.push_back(section);
    paths.push_back(key.path);
  }
  for (const NativeSetting& setting : native_settings())
    paths.push_back(fmt::format("{}.{}", native_section, setting.info.name));
  paths.emplace_back(native_section);
  return paths;
}

// The known key nearest to an unknown one: in the same section if there is one, else anywhere by its last
// name.
std::string suggestion(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string name = last_component(path);
  std::vector<std::string> here, anywhere;
  for (const std::string& known : known_paths()) {
    const std::size_t known_dot = known.rfind('.');
    const std::string known_section = known_dot == std::string::npos ? "" : known.substr(0, known_dot);
    if (known_section == section) here.push_back(last_component(known));
    anywhere.push_back(known);
  }
  if (const std::string nearest = nearest_name(name, here);
      !nearest.empty() && edit_distance(name, nearest) <= 3)
    return section.empty() ? fmt::format(" Did you mean \"{}\"?", nearest)
                           : fmt::format(" Did you mean \"{}\" of the section \"{}\"?", nearest, section);
  std::vector<std::string> names;
  for (const std::string& known : anywhere) names.push_back(last_component(known));
  const std::string nearest = nearest_name(name, names);
  if (nearest.empty()) return "";
  const auto index = static_cast<std::size_t>(std::find(names.begin(), names.end(), nearest) - names.begin());
  const std::string& known = anywhere[index];
  return known == nearest ? fmt::format(" Did you mean \"{}\", at the top level?", nearest)
                          : fmt::format(" Did you mean \"{}\" of the section \"{}\"?", nearest,
                                        known.substr(0, known.size() - nearest.size() - 1));
}

auto setter_of(const DeepSpeedKey& key) {
  return key.set != nullptr ? key.set : find_native(key.native)->set;
}

// Keys of a section that its key "enabled", wherever it stands, may switch off.
bool waits_for_switch(const std::string& path) {
  return (path.starts_with("bf16.") || path.starts_with("fp16.")) && !path.ends_with(".enabled");
}

// "type" first: it says what the others may be, wherever it stands.
std::vector<Json::const_iterator> members_of(const Json& section) {
  std::vector<Json::const_iterator> members;
  for (auto member = section.begin(); member != section.end(); ++member) members.push_back(member);
  std::stable_partition(members.begin(), members.end(),
                        [](const Json::const_iterator& member) { return member.key() == "type"; });
  return members;
}

class Walker {
 public:
  Walker(const std::string& origin, Settings& settings) : origin_(origin), settings_(settings) {}

  void walk(const Json& object, const std::string& prefix);
  void settle_types();
  void apply_native(const Json& section);
  UnusedKeys take_unused() { return std::move(unused_); }

 private:
  std::string label(const std::string& path) const { return fmt::format("{}: \"{}\"", origin_, path); }
  void apply(const DeepSpeedKey& key, const ConfigValue& value);
  void claim(const std::string& native, const std::string& path);
  // Without `enabled`: as in DeepSpeed off, but for "auto", which leaves the section to `otherwise`.
  bool is_on(const std::string& section, std::optional<bool> enabled, bool otherwise) const;
  void apply_waiting(std::string_view section, bool switched_on);

  const std::string& origin_;
  Settings& settings_;
  std::map<std::string, std::string> set_by_;  // native setting -> key of the file
  std::vector<std::pair<const DeepSpeedKey*, ConfigValue>> waiting_;
  std::set<std::string> not_switched_;  // sections that do not say "enabled"
  UnusedKeys unused_;
};

// Two keys of one file that give the same setting a value contradict each other, or will when one is edited.
void Walker::claim(const std::string& native, const std::string& path) {
  const auto [entry, fresh] = set_by_.emplace(native, path);
  if (!fresh)
    throw UsageError(fmt::format("{}: \"{}\" and \"{}\" set the same thing. Keep one of them.", origin_,
                                 entry->second, path));
  settings_.given[native] = path;
}

void Walker::apply(const DeepSpeedKey& key, const ConfigValue& value) {
  if (key.key_class == KeyClass::hint) {
    unused_.hints.push_back(key.path);
  } else if (value.not_given()) {
    if (!value.json().is_null()) unused_.defaults.push_back(key.path);
  } else if (key.key_class == KeyClass::not_available) {
    const Json inert = Json::parse(key.inert);
    const bool asks_for_nothing =
        value.json() == inert || (value.json().is_boolean() && value.json() == false && !inert.is_boolean());
    if (!asks_for_nothing)
      throw UsageError(fmt::format("{} = {} is not available: {}. Remove the key.", value.key(),
                                   value.json().dump(), key.meaning));
  } else {
    if (!key.native.empty()) claim(key.native, key.path);
    setter_of(key)(settings_, value);
  }
}

void Walker::walk(const Json& object, const std::string& prefix) {
  for (const Json::const_iterator& member : members_of(object)) {
    const std::string& name = member.key();
    const Json& value = member.value();
    const auto alias = prefix.empty() ? section_aliases().find(name) : section_aliases().end();
    const std::string path = prefix + (alias == section_aliases().end() ? name : alias->second);
    if (path == native_section) continue;
    if (const DeepSpeedKey* key = find_key(path)) {
      if (waits_for_switch(path))
        waiting_.emplace_back(key, ConfigValue(label(path), value));
      else
        apply(*key, ConfigValue(label(path), value));
    } else if (is_section(path)) {
      if (value.is_null()) continue;
      if (!value.is_object())
        throw UsageError(fmt::format("{} is a section: write an object in braces.", label(path)));
      if (const auto enabled = value.find("enabled"); enabled == value.end() || enabled->is_null())
        not_switched_.insert(path);
      walk(value, path + '.');
    } else {
      throw UsageError(fmt::format("{} is not a known key.{}", label(path), suggestion(path)));
    }
  }
}

bool Walker::is_on(const std::string& section, std::optional<bool> enabled, bool otherwise) const {
  return enabled.value_or(!not_switched_.contains(section) && otherwise);
}

// As in DeepSpeed, what a section that is switched off says is not used; that it can be read is checked.
void Walker::apply_waiting(std::string_view section, bool switched_on) {
  for (const auto& [key, value] : waiting_) {
    if (!key->path.starts_with(section)) continue;
    if (switched_on) {
      apply(*key, value);
    } else if (!value.json().is_null()) {
      Settings unused;
      if (key->key_class == KeyClass::works && !value.not_given()) setter_of (*key)(unused, value);
      unused_.switched_off.push_back(key->path);
    }
  }
}

// Both sections may stand in one file, one of them switched off. A file whose section "bf16" is off, said or
// left unsaid, is of fp32 models; what is left unsaid, headrace.dtype may say.
void Walker::settle_types() {
  const auto bf16 = std::exchange(settings_.bf16_enabled, {}),
             fp16 = std::exchange(settings_.fp16_enabled, {});
  if (bf16.value_or(false) && fp16.value_or(false))
    throw UsageError(fmt::format("{} and {} are both true: a model has one type. Switch one of them off.",
                                 label("bf16.enabled"), label("fp16.enabled")));
  if (fp16.value_or(false)) {
    claim("dtype", "fp16.enabled");
    settings_.dtype = DType::f16;
  } else if (bf16) {
    claim("dtype", "bf16.enabled");
    settings_.dtype = *bf16 ? DType::bf16 : DType::f32;
  } else if (not_switched_.contains("bf16")) {
    settings_.dtype = DType::f32;
  }
  apply_waiting("bf16.", is_on("bf16", bf16, !fp16.value_or(false)));
  apply_waiting("fp16.", is_on("fp16", fp16, true));
}

void Walker::apply_native(const Json& section) {
  if (!section.is_object())
    throw UsageError(
        fmt::format("{} is a section: write an object in braces.", label(std::string(native_section))));
  for (const auto& [name, value] : section.items()) {
    const std::string path = fmt::format("{}.{}", native_section, name);
    const NativeSetting* setting = find_native(name);
    if (setting == nullptr)
      throw UsageError(fmt::format("{} is not a known key.{}", label(path), suggestion(path)));
    const ConfigValue given(label(path), value);
    if (given.not_given() && !(name == "io")) continue;
    claim(name, path);
    setting->set(settings_, given);
  }
}

}  // namespace

UnusedKeys apply_config(const Json& file, const std::string& origin, Settings& settings) {
  if (!file.is_object())
    throw UsageError(fmt::format("{} is not a configuration: it must hold one JSON object.", origin));
  Walker walker(origin, settings);
  walker.walk(file, "");
  walker.settle_types();
  if (const auto native = file.find(native_section); native != file.end()) walker.apply_native(*native);
  return walker.take_unused();
}

}  // namespace headrace
