#include "src/checkpoint/engine_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "headrace/errors.h"
#include "headrace/state_hash.h"

namespace headrace {
namespace {

using nlohmann::json;

LayoutUnit parse_unit(const json& object, std::uint64_t& parameters) {
  LayoutUnit unit{object.at("name").get<std::string>(), object.at("numel").get<std::uint64_t>(), {}};
  for (const json& entry : object.at("parameters")) {
    ++parameters;
    LayoutParameter parameter{entry.at("name").get<std::string>(), entry.at("offset").get<std::uint64_t>(),
                              entry.at("numel").get<std::uint64_t>()};
    if (parameter.numel == 0) continue;
    if (parameter.numel > unit.numel || parameter.offset > unit.numel - parameter.numel)
      throw CorruptData(
          fmt::format("parameter {} lies outside its unit {} in the layout", parameter.name, unit.name));
    unit.parameters.push_back(std::move(parameter));
  }
  std::sort(unit.parameters.begin(), unit.parameters.end(),
            [](const LayoutParameter& a, const LayoutParameter& b) { return a.offset < b.offset; });
  return unit;
}

LayoutBlock parse_block(const json& object, const std::vector<LayoutUnit>& units) {
  const LayoutBlock block{object.at("unit").get<std::size_t>(), object.at("first").get<std::uint64_t>(),
                          object.at("numel").get<std::uint64_t>()};
  if (block.unit >= units.size() || block.numel > units[block.unit].numel ||
      block.first > units[block.unit].numel - block.numel)
    throw CorruptData(fmt::format("block [{}, +{}) lies outside unit {} in the layout", block.first,
                                  block.numel, block.unit));
  return block;
}

template <class Enum>
Enum value_of(const json& object, const char* key, std::initializer_list<Enum> all) {
  const auto name = object.at(key).get<std::string>();
  for (const Enum value : all)
    if (name == name_of(value)) return value;
  throw CorruptData(fmt::format("the layout's {} is {}, which this version does not know", key, name));
}

// A layout without them is of Adam's in fp32.
StateFormat parse_states(const json& layout) {
  if (!layout.contains("states")) return {};
  const json& object = layout.at("states");
  using enum OptimizerKind;
  return {.kind = value_of(object, "optimizer", {adam, adagrad, lion, sgd}),
          .amsgrad = object.at("amsgrad").get<bool>(),
          .momentum = object.at("momentum").get<bool>(),
          .master = value_of(object, "master", {MasterDType::f32, MasterDType::bf16}),
          .moments = value_of(object, "moments", {MomentDType::f32, MomentDType::bf16, MomentDType::int8})};
}

// 8-bit values are kept by quantisation blocks.
void check_borders(const EngineLayout& layout) {
  if (layout.states.moments != MomentDType::int8) return;
  const auto check = [](std::uint64_t border) {
    if (border % quantised_block_numel != 0)
      throw CorruptData(fmt::format(
          "element {} of the layout lies within a quantisation block, where none begins", border));
  };
  for (const LayoutBlock& block : layout.blocks) check(block.first);
  for (const LayoutUnit& unit : layout.units)
    for (const LayoutParameter& parameter : unit.parameters) check(parameter.offset);
}

}  // namespace

std::uint64_t EngineLayout::parameter_numel() const {
  std::uint64_t numel = 0;
  for (const LayoutUnit& unit : units)
    for (const LayoutParameter& parameter : unit.parameters) numel += parameter.numel;
  return numel;
}

EngineLayout parse_engine_layout(const std::string& text) {
  try {
    const json object = json::parse(text);
    EngineLayout layout;
    layout.rank = object.at("rank").get<std::uint32_t>();
    layout.world_size = object.at("world_size").get<std::uint32_t>();
    constexpr std::uint32_t most_ranks = 1 << 20;
    if (layout.rank >= layout.world_size || layout.world_size > most_ranks)
      throw CorruptData(
          fmt::format("the layout says rank {} of {}, which cannot be", layout.rank, layout.world_size));
    layout.stage = object.at("stage").get<int>();
    layout.dtype = object.at("dtype").get<std::string>();
    layout.optimizer_sharded = object.at("optimizer_sharded").get<bool>();
    layout.states = parse_states(object);
    for (const json& unit : object.at("units")) layout.units.push_back(parse_unit(unit, layout.parameters));
    for (const json& block : object.at("blocks")) layout.blocks.push_back(parse_block(block, layout.units));
    check_borders(layout);
    return layout;
  } catch (const json::exception&) {
    throw CorruptData("the layout in store.json is not one that this version's engine writes");
  }
}

CommitState parse_commit_state(const std::string& text) {
  try {
    const json object = json::parse(text);
    return {object.at("data_position").get<std::uint64_t>(), object.at("rng_state").get<std::uint64_t>(),
            object.at("steps_applied").get<std::uint64_t>(), object.at("loss_scale").get<double>()};
  } catch (const json::exception&) {
    throw CorruptData("the commit's metadata is not what this version's engine writes");
  }
}

BlockSum hash_block(const EngineLayout& layout, const LayoutBlock& block, std::span<std::byte> states) {
  const std::vector<LayoutParameter>& parameters = layout.units[block.unit].parameters;
  const StateArrays arrays = state_arrays(layout.states, states.data(), block.numel);
  BlockSum result;
  const std::uint64_t block_end = block.first + block.numel;
  auto parameter = std::partition_point(
      parameters.begin(), parameters.end(),
      [&](const LayoutParameter& candidate) { return candidate.offset + candidate.numel <= block.first; });
  for (; parameter != parameters.end() && parameter->offset < block_end; ++parameter) {
    const std::uint64_t begin = std::max(block.first, parameter->offset);
    const std::uint64_t numel = std::min(block_end, parameter->offset + parameter->numel) - begin;
    result.sum += hash_states(parameter->name, begin - parameter->offset, layout.states, arrays,
                              begin - block.first, numel);
    result.numel += numel;
  }
  return result;
}

}  // namespace headrace
