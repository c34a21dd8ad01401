// Pieces of parameters and their states in host memory: how checkpoints read and fill an engine's states.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "headrace/optimizer_state.h"
#include "headrace/units.h"

namespace headrace {

// No piece is larger, whatever the optimizer block is, so that who copies one needs no more memory.
inline constexpr std::uint64_t most_piece_numel = std::uint64_t{1} << 20;

// Elements [first, first + numel) of a parameter; `first` lies on a quantisation block (state_codes.h).
struct StatePiece {
  const ParameterSpec* parameter = nullptr;
  std::uint64_t first = 0, numel = 0;
};

// The states of a piece: elements [at, at + numel) of the arrays, valid during the call.
using PieceVisitor = std::function<void(const StatePiece&, const StateArrays&, std::uint64_t at)>;

// The states of one moment, for one reader in another thread while the engine goes on. A block that an update
// comes to before the reader is copied first, or the update waits (EngineOptions::snapshot_buffers). Ends
// before its engine, or before the next one; what was not read by then is given up.
class StateSnapshot {
 public:
  virtual ~StateSnapshot() = default;
  virtual const std::vector<StatePiece>& pieces() const = 0;  // in the order of visit()
  // As Engine::visit_pieces. Blocks; once.
  virtual void visit(const PieceVisitor& visit) = 0;
  // Any thread: a reader in visit() gets an Error, and updates go on without copies.
  virtual void give_up() noexcept = 0;
  virtual double owner_waited_seconds() const = 0;  // for the reader, so far
};

}  // namespace headrace
