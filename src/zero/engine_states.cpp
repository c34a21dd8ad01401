// The engine's states by pieces of parameters, as checkpoints see them.
#include <algorithm>

#include "headrace/errors.h"
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

// Those of a block for which this rank answers.
template <class Visit>
void for_each_own_piece(const EngineContext& context, const OptimizerBlock& block, const Visit& visit) {
  const UnitPlan& unit = context.units[block.unit];
  for_each_piece(unit.layout, answered_for(unit, block.range), visit);
}

void bring_pieces(const EngineContext& context, const OptimizerBlock& block, const StateArrays& arrays,
                  const PieceVisitor& visit) {
  for_each_own_piece(context, block, [&](const StatePiece& piece, std::uint64_t flat) {
    visit(piece, arrays, flat - block.range.first);
  });
}

class Snapshot final : public StateSnapshot {
 public:
  Snapshot(const EngineContext& context, std::span<const OptimizerBlock> blocks,
           std::unique_ptr<StateSnapshots::Reader> reader)
      : context_(context), reader_(std::move(reader)) {
    for (const std::uint32_t b : reader_->order())
      for_each_own_piece(context, blocks[b],
                         [&](const StatePiece& piece, std::uint64_t) { pieces_.push_back(piece); });
  }
  const std::vector<StatePiece>& pieces() const override { return pieces_; }
  void visit(const PieceVisitor& visit) override {
    reader_->visit([&](const OptimizerBlock& block, const StateArrays& arrays) {
      bring_pieces(context_, block, arrays, visit);
    });
  }
  void give_up() noexcept override { reader_->give_up(); }
  double owner_waited_seconds() const override { return reader_->owner_waited_seconds(); }

 private:
  const EngineContext& context_;
  std::unique_ptr<StateSnapshots::Reader> reader_;
  std::vector<StatePiece> pieces_;
};

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
  for (const OptimizerBlock& block : impl_->states->blocks())
    for_each_own_piece(impl_->context, block,
                       [&](const StatePiece& piece, std::uint64_t) { pieces.push_back(piece); });
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
    bring_pieces(impl_->context, block, arrays, visit);
  });
}

std::unique_ptr<StateSnapshot> Engine::snapshot() {
  HEADRACE_CHECK(impl_->snapshots != nullptr, "EngineOptions::snapshot_buffers is 0");
  return std::make_unique<Snapshot>(impl_->context, impl_->states->blocks(),
                                    impl_->snapshots->begin(Impl::reversed(impl_->steps_applied + 1)));
}

void Engine::serve_snapshot() {
  impl_->serve_snapshot();
}

void Engine::end_snapshot() noexcept {
  if (impl_->snapshots) impl_->snapshots->end();
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
