#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headrace/inspect.h"

namespace headrace {
namespace {

using nlohmann::ordered_json;

std::string_view name_of(SwapOwner::State state) {
  switch (state) {
    case SwapOwner::State::none:
      return "none";
    case SwapOwner::State::alive:
      return "alive";
    case SwapOwner::State::dead:
      return "dead";
    case SwapOwner::State::unknown:
      return "unknown";
  }
  return "";
}

std::string_view name_of(Durability durability) {
  return durability == Durability::step ? "step" : "none";
}

std::string owner_text(const SwapOwner& owner) {
  switch (owner.state) {
    case SwapOwner::State::none:
      return "none (closed cleanly)";
    case SwapOwner::State::alive:
      return fmt::format("process {} on {}, running", owner.pid, owner.host);
    case SwapOwner::State::dead:
      return fmt::format("process {} on {}, gone", owner.pid, owner.host);
    case SwapOwner::State::unknown:
      return fmt::format("process {} on {} (cannot be seen from here)", owner.pid, owner.host);
  }
  return "";
}

std::string hash_text(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::string rank_text(const InspectedRank& rank) {
  std::string text = fmt::format("rank {} of {}: {}\n", rank.rank, rank.world_size, rank.directory);
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<10} {}\n", name, value);
  };
  line("owner", owner_text(rank.owner));
  if (rank.paths.size() > 1)
    line("paths", fmt::format("{}, of which {} may be lost", rank.paths.size(), rank.parity));
  line("steps", rank.steps.empty() ? "none committed" : fmt::format("{}", fmt::join(rank.steps, ", ")));
  line("run", fmt::format("stage {}, {}, optimizer states {}", rank.stage, rank.dtype,
                          rank.optimizer_sharded ? "sharded" : "replicated"));
  line("model", fmt::format("{} units, {} parameters, {} elements", rank.units, rank.parameters,
                            rank.parameter_numel));
  line("blocks",
       fmt::format("{}, {}; {} on disk, durability {}", rank.blocks, format_bytes(rank.blocks_bytes),
                   format_bytes(rank.extents_bytes), name_of(rank.durability)));
  line("layout", rank.layout_identity);
  if (rank.checked_bytes > 0) line("checked", format_bytes(rank.checked_bytes));
  return text;
}

std::string_view name_of(SwapPath::State state) {
  switch (state) {
    case SwapPath::State::good:
      return "good";
    case SwapPath::State::missing:
      return "missing";
    case SwapPath::State::damaged:
      return "damaged";
    case SwapPath::State::stale:
      return "stale";
    case SwapPath::State::foreign:
      return "foreign";
  }
  return "";
}

ordered_json paths_json(const std::vector<SwapPath>& paths) {
  ordered_json list = ordered_json::array();
  for (const SwapPath& path : paths)
    list.push_back({{"directory", path.directory},
                    {"state", name_of(path.state)},
                    {"problem", path.problem},
                    {"extents_bytes", path.extents_bytes}});
  return list;
}

ordered_json rank_json(const InspectedRank& rank) {
  return {
      {"directory", rank.directory},
      {"rank", rank.rank},
      {"world_size", rank.world_size},
      {"stage", rank.stage},
      {"dtype", rank.dtype},
      {"optimizer_sharded", rank.optimizer_sharded},
      {"durability", name_of(rank.durability)},
      {"parity", rank.parity},
      {"paths", paths_json(rank.paths)},
      {"owner", {{"state", name_of(rank.owner.state)}, {"pid", rank.owner.pid}, {"host", rank.owner.host}}},
      {"steps", rank.steps},
      {"units", rank.units},
      {"parameters", rank.parameters},
      {"parameter_numel", rank.parameter_numel},
      {"blocks", rank.blocks},
      {"blocks_bytes", rank.blocks_bytes},
      {"extents_bytes", rank.extents_bytes},
      {"layout", rank.layout_identity},
      {"checked_bytes", rank.checked_bytes}};
}

}  // namespace

std::string to_text(const InspectReport& report) {
  std::string text = fmt::format("swap path {}\n", report.path);
  for (const InspectedRank& rank : report.ranks) text += rank_text(rank);
  if (report.step)
    text += fmt::format("step {}: {} optimizer steps applied, data position {}, loss scale {}\n",
                        *report.step, report.steps_applied, report.data_position, report.loss_scale);
  if (report.state_hash) text += fmt::format("state hash {}\n", hash_text(*report.state_hash));
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  for (const std::string& problem : report.problems) text += fmt::format("problem: {}\n", problem);
  return text;
}

std::string to_json(const InspectReport& report) {
  ordered_json object = {{"path", report.path}, {"good", report.good()}};
  object["step"] = report.step ? ordered_json(*report.step) : ordered_json();
  if (report.step) {
    object["steps_applied"] = report.steps_applied;
    object["data_position"] = report.data_position;
    object["loss_scale"] = report.loss_scale;
  }
  object["state_hash"] = report.state_hash ? ordered_json(hash_text(*report.state_hash)) : ordered_json();
  object["ranks"] = ordered_json::array();
  for (const InspectedRank& rank : report.ranks) object["ranks"].push_back(rank_json(rank));
  object["notes"] = report.notes;
  object["problems"] = report.problems;
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace);  // a path may be any bytes
}

}  // namespace headrace
