// The engine's states by pieces of parameters, as checkpoints see them.
#include <algorithm>

#include "src/zero/engine_impl.h"
#include "src/zero/initial_states.h"

namespace headrace {
namespace {

// Calls visit(piece, its first element in the flat vector) for the pieces of parameters inside `range`.
template <class Visit>
void for_each_piece(const UnitLayout& layout, Range range, const Visit& visit) {
  for_each_parameter(layout, range, [&](std::size_t p, std::uint64_t first, Range part) {
    for (std::uint64_t done = 0; done < part.numel; done += most_piece_numel)
      visit(StatePiece{.parameter = &layout.spec.parameters[p],
                       .first = first + done,
                       .numel = std::min(most_piece_numel, part.numel - done)},
            part.first + done);
  });
}

// Of replicated states every rank answers for its own shard.
Range answered_for(const UnitPlan& unit, Range block) {
  const std::uint64_t from = std::max(block.first, unit.own.first),
                      to = std::min(block.end(), unit.own.end());
  return {from, from < to ? to - from : 0};
}

}  // namespace

StateFormat Engine::state_format() const {
  return kept_format(impl_->context.options);
}

std::vector<const ParameterSpec*> Engine::parameters() const {
  std::vector<const ParameterSpec*> all;
  for (const UnitPlan& unit : impl_->context.units)
    for (const ParameterSpec& parameter : unit.layout.spec.parameters) all.push_back(&parameter);
  return all;
}

std::vector<StatePiece> Engine::state_pieces() const {
  std::vector<StatePiece> pieces;
  for (const OptimizerBlock& block : impl_->states->blocks()) {
    const UnitPlan& unit = impl_->context.units[block.unit];
    for_each_piece(unit.layout, answered_for(unit, block.range),
                   [&](const StatePiece& piece, std::uint64_t) { pieces.push_back(piece); });
  }
  return pieces;
}

std::vector<StatePiece> Engine::pieces_to_fill() const {
  const EngineContext& context = impl_->context;
  std::vector<StatePiece> pieces;
  for (const OptimizerBlock& block : optimizer_blocks(context.units, context.placement, context.options))
    for_each_piece(context.units[block.unit].layout, block.range,
                   [&](const StatePiece& piece, std::uint64_t) { pieces.push_back(piece); });
  return pieces;
}

void Engine::visit_pieces(const PieceVisitor& visit) {
  impl_->updater->visit([&](const OptimizerBlock& block, const StateArrays& arrays) {
    const UnitPlan& unit = impl_->context.units[block.unit];
    for_each_piece(
        unit.layout, answered_for(unit, block.range),
        [&](const StatePiece& piece, std::uint64_t flat) { visit(piece, arrays, flat - block.range.first); });
  });
}

TrainingState Engine::restore(const PieceVisitor& fill, TrainingState start, std::uint64_t steps_applied,
                              const std::function<void()>& before_replacing) {
  impl_->steps_applied = steps_applied;
  if (impl_->loss_scaler) start.loss_scale = impl_->loss_scaler->resumed(start.loss_scale);
  const StateFormat format = state_format();
  impl_->begin(
      [&](const OptimizerBlock& block, const StateArrays& states) {
        clear_states(format, states, block.range.numel);  // the gaps between parameters
        for_each_piece(impl_->context.units[block.unit].layout, block.range,
                       [&](const StatePiece& piece, std::uint64_t flat) {
                         fill(piece, states, flat - block.range.first);
                       });
      },
      start, before_replacing);
  return start;
}

}  // namespace headrace
