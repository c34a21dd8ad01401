// A configuration of a text and flags, resolved or refused.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "headrace/config.h"
#include "headrace/errors.h"

namespace headrace {

using Flags = std::vector<std::pair<std::string, std::string>>;

inline ResolvedOptions resolve(const std::string& json, const Flags& flags = {}, int world = 1) {
  ConfigDraft draft;
  draft.set_flag("model", "gpt2-mini");
  if (!json.empty()) draft.read_text(json, "run.json");
  for (const auto& [name, value] : flags) draft.set_flag(name, value);
  LaunchInfo launch;
  launch.size = launch.local_size = world;
  if (world > 1) launch.launcher = "mpirun";
  return draft.resolve(launch);
}

inline std::string refusal(const std::string& json, const Flags& flags = {}) {
  try {
    resolve(json, flags);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace headrace
