// Pieces of parameters and their states in host memory: how checkpoints read and fill an engine's states.
#pragma once

#include <cstdint>
#include <functional>

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

}  // namespace headrace
