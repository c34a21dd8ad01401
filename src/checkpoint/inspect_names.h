// Names of states, the same in text and JSON.
#pragma once

#include <string_view>

#include "headrace/inspect.h"

namespace headrace {

constexpr std::string_view name_of(SwapOwner::State state) {
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

constexpr std::string_view name_of(SwapPath::State state) {
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

constexpr std::string_view name_of(InspectedBlock::State state) {
  switch (state) {
    case InspectedBlock::State::never_written:
      return "never written";
    case InspectedBlock::State::unchecked:
      return "unchecked";
    case InspectedBlock::State::good:
      return "good";
    case InspectedBlock::State::damaged:
      return "damaged";
  }
  return "";
}

constexpr std::string_view name_of(SwapJournalRecord::Kind kind) {
  return kind == SwapJournalRecord::Kind::commit ? "commit" : "release";
}

constexpr std::string_view name_of(Durability durability) {
  return durability == Durability::step ? "step" : "none";
}

}  // namespace headrace
