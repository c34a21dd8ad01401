// A checkpoint as text and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "headrace/checkpoint_report.h"
#include "src/checkpoint/text_table.h"

namespace headrace {
namespace {

using nlohmann::ordered_json;
using State = CheckpointFile::State;

std::string_view name_of(State state) {
  switch (state) {
    case State::missing:
      return "missing";
    case State::other_size:
      return "other size";
    case State::unchecked:
      return "not checked";
    case State::good:
      return "good";
    case State::damaged:
      break;
  }
  return "damaged";
}

std::string line(std::string_view what, const std::string& text) {
  return fmt::format("  {:<18}{}\n", what, text);
}

ordered_json repair_json(const CheckpointRepair& repair) {
  ordered_json files = ordered_json::array();
  for (const CheckpointRepair::File& file : repair.files)
    files.push_back({{"name", file.name},
                     {"stripes_checked", file.stripes},
                     {"stripes_rebuilt", file.rebuilt},
                     {"bytes_rebuilt", file.bytes_rebuilt}});
  return {
      {"files", std::move(files)}, {"checked_bytes", repair.checked_bytes}, {"problems", repair.problems}};
}

std::string verdict(const CheckpointReport& report) {
  if (report.good() && report.checked_bytes > 0 && !report.stopped)
    return fmt::format("every byte is good ({} checked)\n", format_bytes(report.checked_bytes));
  if (report.good())
    return report.stopped ? ""
                          : fmt::format("all {} are there; --verify reads every byte\n",
                                        report.facts.pin.empty() ? "files" : "swap stores");
  std::string text;
  for (const std::string& problem : report.problems) text += fmt::format("problem: {}\n", problem);
  return text;
}

}  // namespace

std::string to_text(const CheckpointRepair& repair) {
  std::string text;
  for (const CheckpointRepair::File& file : repair.files)
    text += file.stripes == 0 ? fmt::format("{}: written anew from the other one\n", file.name)
                              : fmt::format("{}: {} of {} stripes rebuilt ({})\n", file.name, file.rebuilt,
                                            file.stripes, format_bytes(file.bytes_rebuilt));
  if (repair.files.empty() && repair.problems.empty() && !repair.stopped)
    text += fmt::format("every byte is good ({} checked): there is nothing to rebuild\n",
                        format_bytes(repair.checked_bytes));
  for (const std::string& problem : repair.problems) text += fmt::format("problem: {}\n", problem);
  return text;
}

std::string to_text(const CheckpointReport& report) {
  const CheckpointFacts& facts = report.facts;
  std::string text = fmt::format("checkpoint {}, step {}\n", facts.path, facts.step);
  text += line("written by", fmt::format("{}, {} rank{}, stage {}", facts.written_by, facts.world_size,
                                         facts.world_size == 1 ? "" : "s", facts.stage));
  text += line("model", fmt::format("{} parameters, {} elements in {} tensors", facts.dtype,
                                    report.parameter_numel, report.parameters));
  text += line("states", text_of(facts.states));
  text +=
      line("optimizer steps", fmt::format("{} applied of {}", facts.steps_applied, facts.state.iteration));
  text += line("data position", fmt::format("{} samples", facts.state.data_position));
  if (facts.dtype == "fp16") text += line("loss scale", fmt::format("{:g}", facts.state.loss_scale.scale));
  text += line("size", fmt::format("{} in {} slices", format_bytes(report.bytes), report.slices));
  if (!facts.pin.empty()) text += line("pinned as", facts.pin);
  if (report.parity > 0) text += line("parity", fmt::format("{} of the files may be lost", report.parity));
  TextTable table({"file", "rank", "slices", "size", "state"}, {false, true, true, true, false});
  for (const CheckpointFile& file : report.files)
    table.add({file.name, file.is_parity ? "-" : std::to_string(file.rank), std::to_string(file.slices),
               format_bytes(file.bytes), std::string(name_of(file.state))});
  text += table.text(2);
  if (report.state_hash) text += line("state_hash", fmt::format("{:016x}", *report.state_hash));
  return text + verdict(report);
}

std::string to_json(const CheckpointReport& report) {
  const CheckpointFacts& facts = report.facts;
  ordered_json files = ordered_json::array();
  for (const CheckpointFile& file : report.files)
    files.push_back({{"name", file.name},
                     {"rank", file.rank},
                     {"bytes", file.bytes},
                     {"slices", file.slices},
                     {"states_bytes", file.states_bytes},
                     {"state", name_of(file.state)}});
  ordered_json object = {
      {"checkpoint", facts.path},
      {"step", facts.step},
      {"written_by", facts.written_by},
      {"world_size", facts.world_size},
      {"stage", facts.stage},
      {"dtype", facts.dtype},
      {"states", text_of(facts.states)},
      {"steps_applied", facts.steps_applied},
      {"data_position", facts.state.data_position},
      {"loss_scale", facts.state.loss_scale.scale},
      {"parameters", report.parameters},
      {"parameter_numel", report.parameter_numel},
      {"bytes", report.bytes},
      {"parity", report.parity},
      {"pin", facts.pin.empty() ? ordered_json() : ordered_json(facts.pin)},
      {"files", std::move(files)},
      {"checked_bytes", report.checked_bytes},
      {"state_hash",
       report.state_hash ? ordered_json(fmt::format("{:016x}", *report.state_hash)) : ordered_json()},
      {"stopped", report.stopped},
      {"problems", report.problems}};
  if (report.repaired) object["repaired"] = repair_json(*report.repaired);
  return object.dump(2);
}

}  // namespace headrace
