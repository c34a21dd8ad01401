#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headrace/inspect.h"
#include "src/checkpoint/inspect_names.h"

namespace headrace {
namespace {

using nlohmann::ordered_json;

ordered_json owner_json(const SwapOwner& owner) {
  return {{"state", name_of(owner.state)}, {"pid", owner.pid}, {"host", owner.host}};
}

ordered_json journal_json(const SwapJournal& journal) {
  ordered_json records = ordered_json::array();
  for (const SwapJournalRecord& record : journal.records)
    records.push_back({{"kind", name_of(record.kind)},
                       {"sequence", record.sequence},
                       {"step", record.step},
                       {"offset", record.offset},
                       {"bytes", record.bytes},
                       {"entries", record.entries},
                       {"metadata_bytes", record.metadata_bytes}});
  return {{"path", journal.path},
          {"file_bytes", journal.file_bytes},
          {"disk_bytes", journal.disk_bytes},
          {"torn_bytes", journal.torn_bytes},
          {"released", journal.released()},
          {"records", records}};
}

ordered_json path_json(const InspectedPath& path) {
  return {{"directory", path.facts.directory},
          {"state", name_of(path.facts.state)},
          {"problem", path.facts.problem},
          {"extents_bytes", path.facts.extents_bytes},
          {"pieces_read", path.pieces},
          {"pieces_damaged", path.damaged_pieces},
          {"owner", owner_json(path.facts.owner)},
          {"journal", path.journal ? journal_json(*path.journal) : ordered_json()}};
}

ordered_json extent_json(const SwapStore::Extent& extent) {
  return {{"path", extent.path},
          {"offset", extent.offset},
          {"length", extent.length},
          {"generation", extent.generation},
          {"crc32c", fmt::format("{:08x}", extent.crc32c)}};
}

ordered_json damage_json(const InspectedDamage& damage) {
  return {{"block", damage.block}, {"problem", damage.problem}, {"extent", extent_json(damage.extent)}};
}

ordered_json repair_json(const SwapRepair& repair) {
  ordered_json paths = ordered_json::array();
  for (const SwapRepairedPath& path : repair.paths)
    paths.push_back({{"directory", path.directory},
                     {"pieces_checked", path.pieces_checked},
                     {"pieces_rebuilt", path.pieces_rebuilt},
                     {"bytes_rebuilt", path.bytes_rebuilt},
                     {"rejoined", path.rejoined}});
  return {{"paths", paths}, {"lost_blocks", repair.lost_blocks}, {"problems", repair.problems}};
}

ordered_json block_json(const InspectedBlock& block) {
  ordered_json extents = ordered_json::array();
  for (const SwapStore::Extent& extent : block.extents) extents.push_back(extent_json(extent));
  return {
      {"name", block.name}, {"bytes", block.bytes}, {"state", name_of(block.state)}, {"extents", extents}};
}

ordered_json pins_json(const InspectedRank& rank) {
  ordered_json pins = ordered_json::array();
  for (const SwapPin& pin : rank.pins) pins.push_back({{"name", pin.name}, {"step", pin.commit.step}});
  return pins;
}

ordered_json rank_json(const InspectedRank& rank) {
  ordered_json paths = ordered_json::array(), generations = ordered_json::array(),
               damage = ordered_json::array();
  for (const InspectedPath& path : rank.paths) paths.push_back(path_json(path));
  for (const auto& [generation, blocks] : rank.generations)
    generations.push_back({{"generation", generation}, {"blocks", blocks}});
  for (const InspectedDamage& each : rank.damage) damage.push_back(damage_json(each));
  ordered_json object = {{"directory", rank.directory},
                         {"rank", rank.rank},
                         {"world_size", rank.world_size},
                         {"stage", rank.stage},
                         {"dtype", rank.dtype},
                         {"optimizer_sharded", rank.optimizer_sharded},
                         {"optimizer", headrace::name_of(rank.states.kind)},
                         {"amsgrad", rank.states.amsgrad},
                         {"momentum", rank.states.momentum},
                         {"master_dtype", headrace::name_of(rank.states.master)},
                         {"moment_dtype", headrace::name_of(rank.states.moments)},
                         {"durability", name_of(rank.durability)},
                         {"parity", rank.parity},
                         {"owner", owner_json(rank.owner)},
                         {"steps", rank.steps},
                         {"pins", pins_json(rank)},
                         {"units", rank.units},
                         {"parameters", rank.parameters},
                         {"parameter_numel", rank.parameter_numel},
                         {"blocks", rank.blocks},
                         {"blocks_bytes", rank.blocks_bytes},
                         {"extents_bytes", rank.extents_bytes},
                         {"disk_bytes", rank.disk_bytes},
                         {"generations", generations},
                         {"layout", rank.layout_identity},
                         {"read_bytes", rank.read_bytes},
                         {"checked_bytes", rank.checked_bytes},
                         {"damage", damage},
                         {"paths", paths}};
  if (rank.block_list.empty()) return object;
  object["block_list"] = ordered_json::array();
  for (const InspectedBlock& block : rank.block_list) object["block_list"].push_back(block_json(block));
  return object;
}

}  // namespace

std::string to_json(const InspectReport& report) {
  ordered_json object = {{"path", report.path}, {"good", report.good()}, {"stopped", report.stopped}};
  object["step"] = report.step ? ordered_json(*report.step) : ordered_json();
  if (report.step) {
    object["steps_applied"] = report.steps_applied;
    object["data_position"] = report.data_position;
    object["loss_scale"] = report.loss_scale;
  }
  object["state_hash"] =
      report.state_hash ? ordered_json(fmt::format("{:016x}", *report.state_hash)) : ordered_json();
  object["ranks"] = ordered_json::array();
  for (const InspectedRank& rank : report.ranks) object["ranks"].push_back(rank_json(rank));
  if (report.repaired) {
    object["repaired"] = ordered_json::array();
    for (const SwapRepair& repair : *report.repaired) object["repaired"].push_back(repair_json(repair));
  }
  object["notes"] = report.notes;
  object["problems"] = report.problems;
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace);  // a path may be any bytes
}

}  // namespace headrace
