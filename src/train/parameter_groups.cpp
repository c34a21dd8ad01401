#include "src/train/parameter_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "headrace/errors.h"
#include "src/train/config_text.h"
#include "src/train/setting_values.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

constexpr std::string_view parameters_key = "parameters";

void set_patterns(NamedGroup& group, const ConfigValue& value) {
  for (const ConfigValue& pattern : settings::values_of(value)) group.patterns.push_back(pattern.text());
}
void set_factor(NamedGroup& group, const ConfigValue& value) {
  group.values.learning_rate_factor = settings::fp32_number(value);
}
void set_betas(NamedGroup& group, const ConfigValue& value) {
  if (!value.json().is_array() || value.json().size() != 2)
    value.refuse("a list of two numbers, beta1 and beta2");
  std::array<double, 2> betas;
  for (std::size_t i = 0; i < 2; ++i) {
    const ConfigValue beta(value.key(), value.json()[i]);
    betas[i] = beta.number(0, 1);
    if (betas[i] == 1) beta.refuse("a number from 0 to less than 1");
  }
  group.values.beta1 = betas[0], group.values.beta2 = betas[1];
}
void set_epsilon(NamedGroup& group, const ConfigValue& value) {
  group.values.epsilon = settings::fp32_number(value);
}
void set_weight_decay(NamedGroup& group, const ConfigValue& value) {
  group.values.weight_decay = settings::fp32_number(value);
}
void set_maximize(NamedGroup& group, const ConfigValue& value) {
  group.values.maximize = value.boolean();
}

struct GroupKey {
  std::string_view name;
  void (*set)(NamedGroup&, const ConfigValue&);
};
constexpr GroupKey group_keys[] = {
    {parameters_key, set_patterns}, {"learning_rate_factor", set_factor}, {"betas", set_betas},
    {"eps", set_epsilon},           {"weight_decay", set_weight_decay},   {"maximize", set_maximize}};

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const GroupKey& key : group_keys) names.emplace_back(key.name);
  return names;
}

// The one numbering, of every message and of EngineOptions::groups: 0 is of what no pattern matches.
std::size_t number_of(std::size_t place_in_list) {
  return place_in_list + 1;
}

// Where a part of the list stands: run.json: "headrace.parameter_groups", group 2, "betas".
std::string part_of_key(const std::string& key, std::size_t index, const std::string& name) {
  const std::string group = fmt::format("{}, group {}", key, number_of(index));
  return name.empty() ? group : fmt::format("{}, \"{}\"", group, name);
}

NamedGroup group_of(const ConfigValue& list, std::size_t index) {
  const Json& object = list.json()[index];
  const ConfigValue whole(part_of_key(list.key(), index, ""), object);
  if (!object.is_object()) whole.refuse("an object in braces");
  NamedGroup group;
  for (const auto& [name, json] : object.items()) {
    const ConfigValue value(part_of_key(list.key(), index, name), json);
    const auto* const key =
        std::find_if(std::begin(group_keys), std::end(group_keys),
                     [&name = name](const GroupKey& known) { return known.name == name; });
    if (key == std::end(group_keys)) {
      const std::string nearest = nearest_name(name, key_names());
      throw UsageError(fmt::format("{} is not a key of a parameter group; there are {}.{}", value.key(),
                                   fmt::join(key_names(), ", "),
                                   nearest.empty() ? "" : fmt::format(" Did you mean \"{}\"?", nearest)));
    }
    if (!value.not_given()) key->set(group, value);
  }
  if (group.patterns.empty())
    throw UsageError(fmt::format("{} says of no parameter that it is its: give \"{}\": [\"wpe.*\"], for one.",
                                 whole.key(), parameters_key));
  return group;
}

// `setting`: the one of all groups that the key gives to one.
void require_effect(const Settings& settings, std::size_t index, std::string_view key,
                    std::string_view setting) {
  if (const std::string_view needs = missing_for(settings, setting); !needs.empty())
    throw UsageError(fmt::format("\"{}\" of group {} of {} would have no effect: it needs {}.", key,
                                 number_of(index), user_name(settings, "parameter_groups"), needs));
}

bool matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// The names that look most like a pattern that matches none.
std::string nearest_names(const std::string& pattern, std::vector<std::string> names) {
  constexpr std::size_t shown = 3;
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(pattern, a) < edit_distance(pattern, b);
  });
  names.resize(std::min(names.size(), shown));
  return fmt::format("{}", fmt::join(names, ", "));
}

void require_matches(const ResolvedOptions& options, const std::vector<std::string>& names) {
  for (std::size_t g = 0; g < options.named_groups.size(); ++g)
    for (const std::string& pattern : options.named_groups[g].patterns)
      if (std::none_of(names.begin(), names.end(),
                       [&](const std::string& name) { return matches(pattern, name); }))
        throw UsageError(fmt::format(
            "{}: the pattern \"{}\" of group {} matches no parameter of {}. The nearest names are {}.",
            options.parameter_groups_name, pattern, number_of(g), options.model.name,
            nearest_names(pattern, names)));
}

bool has(const NamedGroup& group, const std::string& name) {
  return std::any_of(group.patterns.begin(), group.patterns.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

// A group that gives no value is of use only where it keeps a parameter from a group behind it that does.
void require_values(const ResolvedOptions& options, const std::vector<std::string>& names) {
  const std::vector<NamedGroup>& groups = options.named_groups;
  const auto gives_values = [](const NamedGroup& group) { return group.values != ParameterGroup{}; };
  for (auto group = groups.begin(); group != groups.end(); ++group) {
    if (gives_values(*group)) continue;
    const bool keeps = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      const auto in_group = [&](const NamedGroup& other) { return has(other, name); };
      const auto next = std::find_if(group + 1, groups.end(), in_group);
      return has(*group, name) && std::none_of(groups.begin(), group, in_group) && next != groups.end() &&
             gives_values(*next);
    });
    if (!keeps)
      throw UsageError(fmt::format(
          "{}: group {} would have no effect: it gives its parameters no value of their own. Give it one, "
          "\"weight_decay\": 0 for example, or leave it out.",
          options.parameter_groups_name, number_of(static_cast<std::size_t>(group - groups.begin()))));
  }
}

}  // namespace

std::vector<NamedGroup> parameter_groups_of(const ConfigValue& value) {
  if (value.json().is_string())
    return parameter_groups_of(ConfigValue(value.key(), parse_config_text(value.text(), value.key())));
  if (!value.json().is_array()) value.refuse("a list of groups");
  std::vector<NamedGroup> groups;
  for (std::size_t i = 0; i < value.json().size(); ++i) groups.push_back(group_of(value, i));
  return groups;
}

Json parameter_groups_json(const std::vector<NamedGroup>& groups) {
  if (groups.empty()) return {};
  Json list = Json::array();
  for (const auto& [patterns, values] : groups) {
    Json group = {{parameters_key, patterns}};
    if (values.learning_rate_factor != 1) group["learning_rate_factor"] = values.learning_rate_factor;
    if (values.beta1) group["betas"] = {*values.beta1, *values.beta2};
    if (values.epsilon) group["eps"] = *values.epsilon;
    if (values.weight_decay) group["weight_decay"] = *values.weight_decay;
    if (values.maximize) group["maximize"] = *values.maximize;
    list.push_back(std::move(group));
  }
  return list;
}

std::vector<ParameterGroup> engine_groups(const Settings& settings) {
  std::vector<ParameterGroup> groups(1);
  for (std::size_t i = 0; i < settings.parameter_groups.size(); ++i) {
    const ParameterGroup& values = settings.parameter_groups[i].values;
    if (values.beta1) require_effect(settings, i, "betas", "beta1");
    if (values.epsilon) require_effect(settings, i, "eps", "epsilon");
    groups.push_back(values);
  }
  return groups;
}

void assign_groups(std::vector<UnitSpec>& units, const ResolvedOptions& options) {
  std::vector<std::string> names;
  std::vector<bool> used(options.named_groups.size());
  for (UnitSpec& unit : units)
    for (ParameterSpec& parameter : unit.parameters) {
      names.push_back(parameter.name);
      const auto first = std::find_if(options.named_groups.begin(), options.named_groups.end(),
                                      [&](const NamedGroup& group) { return has(group, parameter.name); });
      if (first == options.named_groups.end()) continue;
      const auto place = static_cast<std::size_t>(first - options.named_groups.begin());
      used[place] = true;
      parameter.group = static_cast<std::uint32_t>(number_of(place));
    }
  require_matches(options, names);
  for (std::size_t g = 0; g < used.size(); ++g)
    if (!used[g])
      throw UsageError(
          fmt::format("{}: all that group {} matches belongs to the groups before it: the first match wins. "
                      "Put it first, or leave it out.",
                      options.parameter_groups_name, number_of(g)));
  require_values(options, names);
}

std::vector<std::string> group_lines(const std::vector<UnitSpec>& units, const ResolvedOptions& options) {
  std::vector<std::string> lines;
  if (options.named_groups.empty()) return lines;
  for (std::size_t g = 0; g <= options.named_groups.size(); ++g) {
    std::uint64_t tensors = 0, numel = 0;
    for (const UnitSpec& unit : units)
      for (const ParameterSpec& parameter : unit.parameters)
        if (parameter.group == g) ++tensors, numel += parameter.numel();
    lines.push_back(fmt::format(
        "parameter group {}: {} parameters in {} tensor{}: {}", g, numel, tensors, tensors == 1 ? "" : "s",
        g == 0 ? "all others" : parameter_groups_json({options.named_groups[g - 1]})[0].dump()));
  }
  return lines;
}

}  // namespace headrace
