#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headrace/errors.h"
#include "src/zero/state_store.h"

namespace headrace {

std::vector<SwapBlock> swap_blocks(const std::vector<UnitPlan>& units,
                                   const std::vector<OptimizerBlock>& blocks, const StateFormat& format) {
  std::vector<SwapBlock> result;
  for (const OptimizerBlock& block : blocks)
    result.push_back(
        {fmt::format("{}[{}:{}]", units[block.unit].layout.spec.name, block.range.first, block.range.end()),
         state_bytes(format, block.range.numel)});
  return result;
}

namespace {

nlohmann::ordered_json states_json(const StateFormat& format) {
  return {{"optimizer", name_of(format.kind)},
          {"amsgrad", format.amsgrad},
          {"momentum", format.momentum},
          {"master", name_of(format.master)},
          {"moments", name_of(format.moments)}};
}

}  // namespace

std::string swap_layout(const std::vector<UnitPlan>& units, const std::vector<OptimizerBlock>& blocks,
                        const EngineOptions& options, int rank, int world_size) {
  nlohmann::ordered_json layout = {{"format", 1},
                                   {"engine", "headrace"},
                                   {"rank", rank},
                                   {"world_size", world_size},
                                   {"stage", options.stage},
                                   {"dtype", name_of(options.dtype)},
                                   {"optimizer_sharded", options.stage >= 1}};
  // Left out where they are Adam's in fp32, as in stores that know no other.
  if (const StateFormat format = options.state_format(); format != StateFormat{})
    layout["states"] = states_json(format);
  layout["units"] = nlohmann::ordered_json::array();
  for (const UnitPlan& unit : units) {
    nlohmann::ordered_json parameters = nlohmann::ordered_json::array();
    for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p) {
      const ParameterSpec& spec = unit.layout.spec.parameters[p];
      parameters.push_back({{"name", spec.name},
                            {"shape", spec.shape},
                            {"offset", unit.layout.offsets[p]},
                            {"numel", spec.numel()}});
    }
    layout["units"].push_back({{"name", unit.layout.spec.name},
                               {"numel", unit.layout.numel},
                               {"parameters", std::move(parameters)}});
  }
  layout["blocks"] = nlohmann::ordered_json::array();
  for (const OptimizerBlock& block : blocks)
    layout["blocks"].push_back(
        {{"unit", block.unit}, {"first", block.range.first}, {"numel", block.range.numel}});
  return layout.dump();
}

namespace {

// The layout of the store in the swap folders; empty where it cannot be read.
std::string stored_layout(const EngineOptions& options) {
  try {
    return SwapStore::describe(options.swap_directories).layout;
  } catch (const Error&) {
    return {};
  }
}

// A block size that cuts the units as the layout says: that of its largest block.
Bytes block_bytes_of(const std::string& layout, const StateFormat& format) {
  std::uint64_t largest = 0;
  const auto json = nlohmann::json::parse(layout, nullptr, false);
  if (!json.is_object() || !json.contains("blocks") || !json["blocks"].is_array()) return 0;
  for (const auto& block : json["blocks"]) {
    if (!block.is_object() || !block.contains("numel") || !block["numel"].is_number_unsigned()) return 0;
    largest = std::max(largest, block["numel"].get<std::uint64_t>());
  }
  return state_bytes(format, round_up(largest, norm_chunk_numel));
}

// As a flag takes it.
std::string exact_size(Bytes bytes) {
  constexpr Bytes kibibyte = 1 << 10, mebibyte = 1 << 20;
  if (bytes % mebibyte == 0) return fmt::format("{}MiB", bytes / mebibyte);
  return bytes % kibibyte == 0 ? fmt::format("{}KiB", bytes / kibibyte) : fmt::format("{}", bytes);
}

}  // namespace

namespace {

using Json = nlohmann::ordered_json;

std::uint64_t parameters_of(const Json& layout) {
  std::uint64_t numel = 0;
  for (const Json& unit : layout.at("units"))
    for (const Json& parameter : unit.at("parameters")) numel += parameter.at("numel").get<std::uint64_t>();
  return numel;
}

std::string first_other_unit(const Json& stored, const Json& own) {
  for (std::size_t u = 0; u < own.size(); ++u)
    if (u >= stored.size() || stored[u] != own[u]) return own[u].at("name").get<std::string>();
  return stored[own.size()].at("name").get<std::string>();
}

// What is different, in the words of who started the run: causes only, none of what follows from them.
std::vector<std::string> differences(const Json& stored, const Json& own) {
  std::vector<std::string> result;
  const auto differs = [&](const char* key) { return stored.at(key) != own.at(key); };
  const auto text = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  if (differs("units")) {
    const std::uint64_t before = parameters_of(stored), now = parameters_of(own);
    result.push_back(
        before == now
            ? fmt::format(
                  "the model has other parameters, although as many ({}); the first unit that differs is {}",
                  now, first_other_unit(stored.at("units"), own.at("units")))
            : fmt::format("the model has {} parameters in the store, {} here", before, now));
  }
  for (const auto& [key, what] : {std::pair{"world_size", "the number of ranks"},
                                  {"dtype", "--dtype"},
                                  {"stage", "--stage"},
                                  {"rank", "the rank"}})
    if (differs(key) && (std::string_view(key) != "rank" || !differs("world_size")))
      result.push_back(
          fmt::format("{} is {} in the store, {} here", what, text(stored.at(key)), text(own.at(key))));
  const auto name = [&](std::string_view key, const Json& value) -> std::string {
    // Their states are the same: which of the two it was, the store does not say.
    if (value == "adam") return "adamw or adam";
    if (key == "momentum") return value == true ? "above 0" : "0";
    return text(value);
  };
  const Json states = states_json({});
  const Json before = stored.value("states", states), now = own.value("states", states);
  for (const auto& [key, what] : {std::pair{"optimizer", "--optimizer"},
                                  {"amsgrad", "--amsgrad"},
                                  {"momentum", "--momentum"},
                                  {"master", "--master-dtype"},
                                  {"moments", "--moments"}})
    if (before.at(key) != now.at(key))
      result.push_back(fmt::format("{} is {} in the store, {} here", what, name(key, before.at(key)),
                                   name(key, now.at(key))));
  return result;
}

void refuse_other_block_size(const EngineContext& context, const std::string& stored) {
  EngineOptions options = context.options;
  options.swap_block_bytes = block_bytes_of(stored, options.state_format());
  if (options.swap_block_bytes == 0 || block_numel(options) == block_numel(context.options)) return;
  const std::string layout =
      swap_layout(context.units, optimizer_blocks(context.units, context.placement, options), options,
                  context.communicator.rank(), context.communicator.size());
  if (layout != stored) return;
  const std::string size = exact_size(options.swap_block_bytes);
  throw UsageError(fmt::format(
      "--swap-block is {} in the store in {}, {} here, and is fixed for the life of a store: give "
      "--swap-block {}. Starting anew, without --resume swap, would delete the states.",
      size, fmt::join(options.swap_directories, ", "), exact_size(context.options.swap_block_bytes), size));
}

}  // namespace

void refuse_other_layout(const EngineContext& context, const std::string& layout) {
  const std::string stored = stored_layout(context.options);
  if (stored == layout) return;
  refuse_other_block_size(context, stored);
  std::vector<std::string> found;
  try {
    found = differences(Json::parse(stored), Json::parse(layout));
  } catch (const Json::exception&) {  // not a layout of this program: the store itself says so
  }
  if (found.empty()) return;
  throw UsageError(fmt::format(
      "the swap store in {} is of another run: {}. Continue it with what it was made with, or give this run "
      "another --swap-path.",
      fmt::join(context.options.swap_directories, ", "), fmt::join(found, "; ")));
}

std::string encode_training_state(const TrainingState& state, std::uint64_t steps_applied) {
  return nlohmann::ordered_json{{"step", state.iteration},
                                {"data_position", state.data_position},
                                {"rng_state", state.rng_state},
                                {"loss_scale", state.loss_scale.scale},
                                {"loss_scale_good_steps", state.loss_scale.good_steps},
                                {"loss_scale_hysteresis_left", state.loss_scale.hysteresis_left},
                                {"iteration", state.iteration},
                                {"steps_applied", steps_applied},
                                {"run", state.run},
                                {"run_id", state.run_id}}
      .dump();
}

TrainingState decode_training_state(const std::string& text, std::uint64_t& steps_applied,
                                    std::string_view place) {
  try {
    const auto json = nlohmann::json::parse(text);
    TrainingState state;
    state.data_position = json.at("data_position").get<std::uint64_t>();
    state.rng_state = json.at("rng_state").get<std::uint64_t>();
    state.iteration = json.at("iteration").get<std::uint64_t>();
    state.loss_scale.scale = json.at("loss_scale").get<double>();
    // Commits of before fp16 do not say these, and need not.
    state.loss_scale.good_steps = json.value("loss_scale_good_steps", state.loss_scale.good_steps);
    state.loss_scale.hysteresis_left =
        json.value("loss_scale_hysteresis_left", state.loss_scale.hysteresis_left);
    state.run = json.at("run").get<std::string>();
    state.run_id = json.value("run_id", std::uint64_t{0});
    steps_applied = json.at("steps_applied").get<std::uint64_t>();
    return state;
  } catch (const nlohmann::json::exception&) {
    throw CorruptData(fmt::format(
        "{} does not hold a training state: another version of this program wrote it. Continue the "
        "run with that version, or start a new one.",
        place));
  }
}

}  // namespace headrace
