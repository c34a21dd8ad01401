// Swap stores as the engine writes them, of a small model whose values are known: for the tests of inspect
// and of the stand-alone reader.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headrace/optimizer_state.h"
#include "headrace/state_hash.h"
#include "headrace/swap_store.h"

namespace headrace::testing {

struct ModelParameter {
  std::string name;
  std::uint64_t offset = 0, numel = 0;
};
struct ModelUnit {
  std::string name;
  std::uint64_t numel = 0;
  std::vector<ModelParameter> parameters;
};
struct ModelBlock {
  std::size_t unit = 0;
  std::uint64_t first = 0, numel = 0;
};

// States of every kind and type, by the names that the stand-alone reader's test uses.
inline StateFormat states_of(const std::string& optimizer, const std::string& master,
                             const std::string& moments) {
  StateFormat states;
  if (optimizer == "amsgrad") states.amsgrad = true;
  if (optimizer == "adagrad") states.kind = OptimizerKind::adagrad;
  if (optimizer == "lion") states.kind = OptimizerKind::lion;
  if (optimizer == "sgd" || optimizer == "momentum") states.kind = OptimizerKind::sgd;
  states.momentum = optimizer == "momentum";
  if (master == "bf16") states.master = MasterDType::bf16;
  if (moments != "fp32") states.moments = moments == "int8" ? MomentDType::int8 : MomentDType::bf16;
  return states;
}

// Gaps between parameters, an empty parameter, a name that is not ASCII, sizes that are no multiple of
// anything.
inline std::vector<ModelUnit> small_model() {
  return {{"embedding", 1000, {{"wte", 0, 1000}}},
          {"block0",
           461,
           {{"h.0.weight", 0, 300}, {"empty", 0, 0}, {"h.0.bias", 320, 77}, {"gewicht.ü", 448, 13}}},
          {"head", 5, {{"ln_f", 0, 5}}}};
}

// The flat range of each unit that a rank owns, cut into blocks: borders fall inside parameters and gaps.
inline std::vector<ModelBlock> blocks_of_rank(const std::vector<ModelUnit>& units, std::uint32_t rank,
                                              std::uint32_t world_size, std::uint64_t block_numel) {
  std::vector<ModelBlock> blocks;
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    const std::uint64_t begin = units[unit].numel * rank / world_size;
    const std::uint64_t end = units[unit].numel * (rank + 1) / world_size;
    for (std::uint64_t first = begin; first < end; first += block_numel)
      blocks.push_back({unit, first, std::min(block_numel, end - first)});
  }
  return blocks;
}

// The value of one element after a step; what a gap holds must not matter, and differs between layouts.
inline float value_of(std::size_t unit, std::uint64_t index, std::uint64_t kind, std::uint64_t step) {
  return static_cast<float>(splitmix64(unit * 1000003 + index * 31 + kind * 7 + step) % 100003) / 1024.0f -
         48.0f;
}

inline std::uint8_t code_of(std::uint64_t unit, std::uint64_t index, std::uint64_t kind, std::uint64_t step) {
  return static_cast<std::uint8_t>(splitmix64(unit * 7919 + index * 13 + kind * 5 + step));
}
inline float scale_of(std::uint64_t unit, std::uint64_t index, std::uint64_t kind, std::uint64_t step) {
  return std::abs(value_of(unit, index / quantised_block_numel, kind, step + 99));
}

// What a reader finds of it: kind 0 is the master, the others the moments.
inline float kept_value(const StateFormat& states, std::uint64_t unit, std::uint64_t index,
                        std::uint64_t kind, std::uint64_t step) {
  const float value = value_of(unit, index, kind, step);
  if (kind == 0) return states.master == MasterDType::bf16 ? to_float(to_bf16(value)) : value;
  if (states.moments == MomentDType::f32) return value;
  if (states.moments == MomentDType::bf16) return to_float(to_bf16(value));
  const std::uint8_t code = code_of(unit, index, kind, step);
  const float scale = scale_of(unit, index, kind, step);
  return moment_of(states, static_cast<int>(kind) - 1).squared ? decode_squared(code, scale)
                                                               : decode_signed(code, scale);
}

class EngineStore {
 public:
  EngineStore(std::string directory, std::uint32_t rank, std::uint32_t world_size, int stage,
              std::uint64_t block_numel, IoEngine& engine, Durability durability = Durability::step)
      : EngineStore(std::vector<std::string>{std::move(directory)}, rank, world_size, stage, block_numel,
                    engine, durability, 0) {}
  EngineStore(std::vector<std::string> directories, std::uint32_t rank, std::uint32_t world_size, int stage,
              std::uint64_t block_numel, IoEngine& engine, Durability durability, std::uint32_t parity,
              const StateFormat& states = {}, std::uint32_t pins = 0)
      : units_(small_model()),
        states_(states),
        blocks_(stage > 0 ? blocks_of_rank(units_, rank, world_size, block_numel)
                          : blocks_of_rank(units_, 0, 1, block_numel)),
        store_(SwapStore::create({.directories = std::move(directories),
                                  .durability = durability,
                                  .layout = layout(rank, world_size, stage),
                                  .parity = parity,
                                  .pins = pins},
                                 swap_blocks(), engine)) {}
  // One rank on several folders.
  EngineStore(std::vector<std::string> directories, std::uint32_t parity, std::uint64_t block_numel,
              IoEngine& engine)
      : EngineStore(std::move(directories), 0, 1, 1, block_numel, engine, Durability::step, parity) {}
  SwapStore& operator*() { return *store_; }

  void commit(std::uint64_t step, double loss_scale = 1024.0) {
    for (std::uint32_t block = 0; block < blocks_.size(); ++block) write(block, step);
    store_->commit({step, nlohmann::json{{"step", step},
                                         {"data_position", step * 8},
                                         {"rng_state", 0xFEDCBA9876543210ull},
                                         {"loss_scale", loss_scale},
                                         {"iteration", step},
                                         {"steps_applied", step - 1}}
                              .dump()});
  }
  void release() { store_->release_superseded(); }

 private:
  void write(std::uint32_t block, std::uint64_t step) {
    const ModelBlock& range = blocks_[block];
    const Bytes bytes = store_->buffer_bytes(block);
    std::vector<Page> pages(bytes / sizeof(Page) + 1);
    const StateArrays arrays = state_arrays(states_, reinterpret_cast<std::byte*>(pages.data()), range.numel);
    for (std::uint64_t i = 0; i < range.numel; ++i) {
      const std::uint64_t index = range.first + i;
      const std::uint64_t blot = inside_a_parameter(range.unit, index) ? 0 : blocks_.size();
      for (int kind = 0; kind <= moment_count(states_); ++kind)
        put(arrays, i, range.unit, index, static_cast<std::uint64_t>(kind), step + blot);
    }
    store_->write(block, HostLease::borrowed(std::as_writable_bytes(std::span(pages)).first(bytes))).wait();
  }
  bool inside_a_parameter(std::size_t unit, std::uint64_t index) const {
    for (const ModelParameter& parameter : units_[unit].parameters)
      if (index >= parameter.offset && index < parameter.offset + parameter.numel) return true;
    return false;
  }
  void put(const StateArrays& arrays, std::uint64_t i, std::uint64_t unit, std::uint64_t index,
           std::uint64_t kind, std::uint64_t step) const {
    const float value = value_of(unit, index, kind, step);
    const MomentArray moment = kind == 0 ? MomentArray{} : arrays.moments[kind - 1];
    std::byte* values = kind == 0 ? arrays.master : moment.values;
    const bool is_bf16 =
        kind == 0 ? states_.master == MasterDType::bf16 : states_.moments == MomentDType::bf16;
    if (is_bf16) {
      reinterpret_cast<bf16*>(values)[i] = to_bf16(value);
    } else if (kind == 0 || states_.moments == MomentDType::f32) {
      reinterpret_cast<float*>(values)[i] = value;
    } else {
      values[i] = static_cast<std::byte>(code_of(unit, index, kind, step));
      if (inside_a_parameter(unit, index))
        moment.scales[i / quantised_block_numel] = scale_of(unit, index, kind, step);
    }
  }
  std::vector<SwapBlock> swap_blocks() const {
    std::vector<SwapBlock> blocks;
    for (const ModelBlock& block : blocks_)
      blocks.push_back({units_[block.unit].name + "[" + std::to_string(block.first) + "]",
                        state_bytes(states_, block.numel)});
    return blocks;
  }
  std::string layout(std::uint32_t rank, std::uint32_t world_size, int stage) const {
    nlohmann::json object = {{"format", 1},
                             {"engine", "headrace"},
                             {"rank", rank},
                             {"world_size", world_size},
                             {"stage", stage},
                             {"dtype", "bf16"},
                             {"optimizer_sharded", stage > 0}};
    if (states_ != StateFormat{})
      object["states"] = {{"optimizer", name_of(states_.kind)},
                          {"amsgrad", states_.amsgrad},
                          {"momentum", states_.momentum},
                          {"master", name_of(states_.master)},
                          {"moments", name_of(states_.moments)}};
    for (const ModelUnit& unit : units_) {
      nlohmann::json parameters = nlohmann::json::array();
      for (const ModelParameter& parameter : unit.parameters)
        parameters.push_back({{"name", parameter.name},
                              {"shape", {parameter.numel}},
                              {"offset", parameter.offset},
                              {"numel", parameter.numel}});
      object["units"].push_back({{"name", unit.name}, {"numel", unit.numel}, {"parameters", parameters}});
    }
    object["blocks"] = nlohmann::json::array();
    for (const ModelBlock& block : blocks_)
      object["blocks"].push_back({{"unit", block.unit}, {"first", block.first}, {"numel", block.numel}});
    return object.dump();
  }

  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<ModelUnit> units_;
  StateFormat states_;
  std::vector<ModelBlock> blocks_;
  std::unique_ptr<SwapStore> store_;
};

// The hash by its definition, from the values themselves.
inline std::uint64_t expected_hash(std::uint64_t step, double loss_scale = 1024.0,
                                   const StateFormat& states = {}) {
  std::uint64_t sum = 0;
  const std::vector<ModelUnit> units = small_model();
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (const ModelParameter& parameter : units[unit].parameters)
      for (int kind = 0; kind <= moment_count(states); ++kind) {
        const std::uint64_t key = state_key(parameter.name, static_cast<StateKind>(kind));
        for (std::uint64_t i = 0; i < parameter.numel; ++i)
          sum += splitmix64(splitmix64(key + i) ^
                            std::bit_cast<std::uint32_t>(kept_value(states, unit, parameter.offset + i,
                                                                    static_cast<std::uint64_t>(kind), step)));
      }
  return finish_state_hash(sum, step - 1, 0xFEDCBA9876543210ull, loss_scale, step * 8);
}

}  // namespace headrace::testing
